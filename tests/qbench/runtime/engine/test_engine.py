"""The engine against `generate`, one request at a time: the same tokens, texts and log-probabilities, whatever else."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.architectures import KINDS, random_weights, small_config
from support.array_source import ArraySource
from support.byte_tokenizer import byte_tokenizer
from support.engine_runs import GREEDY, alone, assert_no_page_is_lost, prompt, run, tokens_of

from qbench.run.options import RunOptions
from qbench.runtime import Sampling, generate, load_model
from qbench.runtime.engine import Engine, EngineOptions, NeverFits, QueueFull, Request
from quant.errors import InputError

DRAWN = Sampling(temperature=0.9, top_p=0.95, repetition_penalty=1.1, seed=3)

OPTIONS = {
    "memory for all": EngineOptions(num_pages=200),
    "memory for few": EngineOptions(num_pages=12, prefill_chunk=32),
    "no sharing": EngineOptions(num_pages=12, prefix_caching=False),
    "small chunks": EngineOptions(num_pages=40, prefill_chunk=3, max_batch=3),
    "swapped": EngineOptions(num_pages=12, prefill_chunk=32, preempt="swap"),
    "swapped, no sharing": EngineOptions(num_pages=12, prefix_caching=False, preempt="swap"),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_each_request_gets_its_separate_result(model, options, sampling):
    shared = prompt(0, 40)
    requests = [
        Request((*shared[: 5 * number], *prompt(number, 1 + 7 * number)), sampling, 40 + 5 * number, stop_ids=())
        for number in range(8)
    ]
    engine = Engine(model, options)
    ids = [engine.submit(request) for request in requests]
    got = tokens_of(run(engine))
    assert [got[id] for id in ids] == [alone(model, request) for request in requests]
    stats = engine.stats()
    assert (stats.preemptions > 0) == (options.num_pages == 12)
    assert (stats.swapped_out > 0) == (stats.swapped_in > 0) == (options.preempt == "swap")
    assert_no_page_is_lost(engine)


@pytest.mark.parametrize("preempt", ["recompute", "swap"])
def test_prompts_are_scored_whole_though_their_prefixes_are_shared_and_they_are_preempted(model, preempt):
    shared = prompt(0, 40)
    requests = [
        Request((*shared, *prompt(number, 20)), GREEDY, new, (), scores_prompt=True)
        for number, new in enumerate((0, 60, 0, 60, 0, 60))
    ]
    engine = Engine(model, EngineOptions(num_pages=12, prefill_chunk=8, preempt=preempt))
    ids = [engine.submit(request) for request in requests]
    scored = {event.request_id: event.prompt for event in run(engine) if event.prompt}
    assert engine.stats().preemptions > 0 and scored.keys() == {*ids}
    for id, request in zip(ids, requests, strict=True):
        first, *rest = scored[id]
        assert (first.token, first.logprob) == (request.tokens[0], None)
        assert tuple(event.token for event in rest) == request.tokens[1:]
        cache = model.new_cache(capacity=60)
        halves = [model(torch.tensor([request.tokens[at : at + 30]]), cache)[0].double() for at in (0, 30)]
        expected = torch.log_softmax(torch.cat(halves), -1)
        assert [event.logprob for event in rest] == pytest.approx(
            expected[torch.arange(59), torch.tensor(request.tokens[1:])].tolist(), abs=1e-5
        )
    assert_no_page_is_lost(engine)
    with pytest.raises(InputError, match="max_new_tokens is 0, expected at least 1"):
        engine.submit(Request(shared, GREEDY, 0))


@pytest.mark.parametrize("preempt", ["recompute", "swap"])
@pytest.mark.parametrize("kv", ["kv-f16", "kv-fp8", "kv-int8", "kv-int4"])
def test_in_every_format_of_keys_and_values(load, kv, preempt):
    model = load(kv)
    requests = [Request((*prompt(0, 35), *prompt(number, 5 + number)), GREEDY, 40, stop_ids=()) for number in range(4)]
    engine = Engine(model, EngineOptions(num_pages=12, preempt=preempt))
    ids = [engine.submit(request) for request in requests]
    got = tokens_of(run(engine))
    assert [got[id] for id in ids] == [alone(model, request) for request in requests]
    assert engine.stats().preemptions > 0 and engine.stats().prefix_hit_tokens > 0


@pytest.mark.parametrize("kind", KINDS)
def test_in_every_architecture(kind):
    config = small_config(kind)
    model = load_model(ArraySource(config, random_weights(config)), RunOptions(compute="exact"))
    requests = [Request((*range(2, 20 + 3 * each), 50 + each), GREEDY, 24, stop_ids=()) for each in range(5)]
    engine = Engine(model, EngineOptions(num_pages=9, max_batch=4, prefill_chunk=16))
    ids = [engine.submit(request) for request in requests]
    got = tokens_of(run(engine))
    assert [got[id] for id in ids] == [alone(model, request) for request in requests]
    assert engine.stats().preemptions > 0 and engine.stats().prefix_hit_tokens > 0


@pytest.fixture(scope="module")
def greedy_texts(model) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Texts of prompts that share beginnings, up to the middle of a page and across some."""
    base = prompt(1, 50)
    prompts = [base[:1], base[:15], base[:16], base, (*base[:20], 7, 8), (*base[:35], 9), prompt(2, 33)]
    return {each: alone(model, Request(each, GREEDY, 40, stop_ids=())) for each in prompts}


ACTIONS = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 6), st.integers(1, 40), st.sampled_from([None, "a"])),
    st.tuples(st.just("steps"), st.integers(1, 12)),
    st.tuples(st.just("abort"), st.integers(0, 10)),
    st.tuples(st.just("forget"), st.sampled_from([None, "a"])),
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    actions=st.lists(ACTIONS, min_size=5, max_size=25),
    num_pages=st.integers(6, 30),
    chunk=st.integers(2, 64),
    batch=st.integers(1, 5),
    caching=st.booleans(),
    preempt=st.sampled_from(["recompute", "swap"]),
)
def test_no_schedule_changes_a_greedy_text(model, greedy_texts, actions, num_pages, chunk, batch, caching, preempt):
    options = EngineOptions(
        num_pages=num_pages, prefill_chunk=chunk, max_batch=batch, prefix_caching=caching, preempt=preempt
    )
    engine, events, expected = Engine(model, options), [], {}
    for action, *values in [*actions, ("submit", 3, 40, None)]:
        if action == "submit":
            tokens = list(greedy_texts)[values[0]]
            request = Request(tokens, GREEDY, values[1], stop_ids=(), version=values[2])
            expected[engine.submit(request)] = greedy_texts[tokens][: values[1]]
        elif action == "steps":
            for _ in range(values[0]):
                events += engine.step()
        elif action == "forget":
            engine.forget(values[0])
        elif expected:
            aborted = list(expected)[values[0] % len(expected)]
            engine.abort(aborted)
    events += run(engine)
    finished = tokens_of(events)
    told = {event.request_id: event for event in events if event.kind != "token"}
    assert told.keys() == expected.keys() and all(event.kind == "finished" for event in told.values())
    assert all(finished[id] == expected[id] for id in finished)
    assert finished.keys() == {id for id, event in told.items() if event.finish_reason != "abort"}
    assert_no_page_is_lost(engine)


def test_log_probabilities_match_the_separate_request(model):
    requests = [Request(prompt(seed, 10 + seed), DRAWN, 6, stop_ids=(), logprobs=3) for seed in range(3)]
    engine = Engine(model, EngineOptions(num_pages=50))
    ids = [engine.submit(request) for request in requests]
    events = run(engine)
    for id, request in zip(ids, requests, strict=True):
        wanted = generate(model, request.tokens, DRAWN, 6, stop_ids=(), logprobs=3).log_probabilities
        mine = [event for event in events if (event.request_id, event.kind) == (id, "token")]
        assert [(event.logprob, event.top_logprobs) for event in mine] == [(each.chosen, each.top) for each in wanted]


def test_stop_tokens_end_a_text_and_are_left_out(model):
    free = alone(model, Request(prompt(5, 9), GREEDY, 20, stop_ids=()))
    engine = Engine(model, EngineOptions(num_pages=10))
    id = engine.submit(Request(prompt(5, 9), GREEDY, 20, stop_ids=(free[7],)))
    events = run(engine)
    assert tokens_of(events) == {id: free[: free.index(free[7])]}
    assert events[-1].finish_reason == "stop"


@pytest.mark.parametrize("caching", [True, False], ids=["shared", "each by itself"])
def test_texts_stream_up_to_a_stop_string(model, caching):
    tokenizer, sampling = byte_tokenizer(), replace(DRAWN, temperature=3.0)
    request = Request(prompt(6, 9), sampling, 40, stop_ids=range(256, 300))
    free = generate(model, request.tokens, sampling, 40, stop_ids=request.stop_ids)
    stream = tokenizer.stream(request.tokens)
    text = "".join([stream.push(token) for token in free.tokens]) + stream.flush()
    stop = text[3:6]
    engine = Engine(model, EngineOptions(num_pages=20, prefix_caching=caching), tokenizer)
    whole, cut = engine.submit(request), engine.submit(replace(request, stop_strings=(stop, "\u2603")))
    events = run(engine)
    told = {id: "".join(event.text for event in events if event.request_id == id) for id in (whole, cut)}
    assert told == {whole: text, cut: text[: text.index(stop)]}
    last = {event.request_id: event for event in events}
    assert last[cut].finish_reason == "stop"
    assert_no_page_is_lost(engine)


def test_a_hundred_questions_on_a_document_compute_it_once(model):
    document = prompt(7, 100)
    requests = [Request((*document, *prompt(8 + number, 5)), GREEDY, 3, stop_ids=()) for number in range(100)]
    texts, computed = [], []
    for caching in (True, False):
        engine = Engine(model, EngineOptions(num_pages=500, prefix_caching=caching))
        ids = [engine.submit(request) for request in requests]
        got = tokens_of(run(engine))
        texts.append([got[id] for id in ids])
        computed.append(engine.stats().computed_tokens)
    # 2 of 3 new tokens are computed. The document's last 4 tokens are in a page that is shared after a question is
    # answered and writes to it no more: each of the first batch of 32 may compute them by itself.
    assert computed[1] == 100 * (105 + 2)
    assert 100 + 100 * (5 + 2) <= computed[0] <= 100 + 100 * (5 + 2) + 32 * 4
    assert texts[0] == texts[1]


def test_another_version_of_a_document_is_computed_again(model):
    engine = Engine(model, EngineOptions(num_pages=50))
    for version, hits in (("1", 0), ("1", 32), ("2", 0), (None, 0), ("1", 32)):
        before = engine.stats().prefix_hit_tokens
        engine.submit(Request(prompt(9, 33), GREEDY, 1, version=version))
        run(engine)
        assert engine.stats().prefix_hit_tokens - before == hits
    engine.forget("1")
    engine.submit(Request(prompt(9, 33), GREEDY, 1, version="1"))
    run(engine)
    assert engine.stats().prefix_hit_tokens == 64


@pytest.mark.parametrize("forgets", [False, True])
def test_a_request_that_runs_while_its_version_is_forgotten_leaves_nothing_to_share(model, forgets):
    engine = Engine(model, EngineOptions(num_pages=50))
    engine.submit(Request(prompt(9, 33), GREEDY, 20, stop_ids=(), version="1"))
    engine.step()
    if forgets:
        engine.forget("1")
    run(engine)
    engine.submit(Request(prompt(9, 33), GREEDY, 1, version="1"))
    run(engine)
    assert engine.stats().prefix_hit_tokens == (0 if forgets else 32)


def test_an_aborted_request_frees_its_pages_at_once(model):
    engine = Engine(model, EngineOptions(num_pages=20, prefix_caching=False))
    ids = [engine.submit(Request(prompt(seed, 40), GREEDY, 40)) for seed in range(3)]
    for _ in range(3):
        engine.step()
    free = engine.stats().free_pages
    engine.abort(ids[1])
    engine.abort(ids[1])
    engine.abort(1000)
    assert engine.stats().free_pages == free + 3
    assert [(event.request_id, event.finish_reason) for event in engine.step() if event.kind == "finished"] == [
        (ids[1], "abort")
    ]
    assert set(tokens_of(run(engine))) == {ids[0], ids[2]}


def test_a_queue_of_a_thousand_is_worked_off_and_one_more_is_refused(model):
    engine = Engine(model, EngineOptions(num_pages=100, max_queue=1000))
    for number in range(1000):
        engine.submit(Request(prompt(number % 7, 1 + number % 30), GREEDY, 1, stop_ids=()))
    with pytest.raises(QueueFull, match="1000 requests wait already"):
        engine.submit(Request((1,), GREEDY, 1))
    assert len(tokens_of(run(engine))) == 1000
    assert_no_page_is_lost(engine)


@pytest.mark.parametrize(
    "request_, error, message",
    [
        (Request(()), InputError, "the prompt is empty"),
        (Request((1, 300)), InputError, "token id 300 is outside the vocabulary, expected 0 to 299"),
        (Request((-1,)), InputError, "token id -1"),
        (Request((1,), max_new_tokens=0), InputError, "max_new_tokens is 0"),
        (Request((1,) * 200, max_new_tokens=100), InputError, "context of 256"),
        (Request((1,), max_new_tokens=4, logprobs=301), InputError, "logprobs is 301, expected 0 to 300"),
        (Request((1,), max_new_tokens=4, stop_strings=("a",)), InputError, "stop strings need .* tokenizer"),
        (Request((1,) * 60, max_new_tokens=21), NeverFits, "take 6 pages of 16, but there are 5"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_requests_that_cannot_be_are_refused(model, request_, error, message):
    engine = Engine(model, EngineOptions(num_pages=5))
    with pytest.raises(error, match=message):
        engine.submit(request_)
    assert not engine.has_work and engine.step() == []


def test_a_request_that_fills_all_pages_is_taken(model):
    engine = Engine(model, EngineOptions(num_pages=5))
    requests = [Request(prompt(seed, 60), GREEDY, 20, stop_ids=()) for seed in (1, 1, 2)]
    ids = [engine.submit(request) for request in requests]
    got = tokens_of(run(engine))
    assert [got[id] for id in ids] == [alone(model, request) for request in requests]


def test_an_error_in_one_text_ends_only_its_request(model, caplog):
    engine = Engine(model, EngineOptions(num_pages=64), byte_tokenizer())
    broken, whole = (engine.submit(Request(prompt(seed, 20), GREEDY, 5)) for seed in (1, 2))

    def push(token):
        raise ZeroDivisionError("by a bug")

    engine._states[broken].stream.push = push
    events = run(engine)
    failed = [event for event in events if event.kind == "failed"]
    assert [(event.request_id, event.error) for event in failed] == [(broken, "ZeroDivisionError: by a bug")]
    assert list(tokens_of(events)) == [whole] and "by a bug" in caplog.text
    assert_no_page_is_lost(engine)


def test_no_request_crosses_the_length_at_which_a_rotation_changes():
    rope = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    config = small_config(
        "phi3", rope_scaling=rope, original_max_position_embeddings=64, max_position_embeddings=128, vocab_size=300
    )
    engine = Engine(load_model(ArraySource(config, random_weights(config))), EngineOptions(num_pages=64))
    with pytest.raises(InputError, match="exceed the model's context of 64"):
        engine.submit(Request(prompt(1, 40), GREEDY, 40))
    engine.submit(Request(prompt(1, 40), GREEDY, 24))
    assert [event.finish_reason for event in run(engine)][-1] == "length"


def test_logits_that_are_no_numbers_fail_the_request_with_the_reason():
    config = small_config()
    weights = random_weights(config)
    weights["model.embed_tokens.weight"][5] = math.nan
    engine = Engine(load_model(ArraySource(config, weights)), EngineOptions(num_pages=10))
    good, bad = engine.submit(Request((1, 2), GREEDY, 4, stop_ids=())), engine.submit(Request((1, 5), GREEDY, 4))
    events = run(engine)
    assert len(tokens_of(events)[good]) == 4
    (failed,) = [event for event in events if event.kind == "failed"]
    assert failed.request_id == bad and "weights are damaged" in failed.error
    assert_no_page_is_lost(engine)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_pages": 0}, "num_pages is 0, expected at least 1"),
        ({"max_batch": 0}, "max_batch is 0"),
        ({"prefill_chunk": 1}, "prefill_chunk is 1, expected at least 2"),
        ({"max_overtakes": -1}, "max_overtakes is -1"),
        ({"prefix_max_age_s": math.nan}, "prefix_max_age_s is nan"),
    ],
)
def test_impossible_options_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        EngineOptions(**arguments)


def test_memory_in_bytes_becomes_pages(model):
    page_bytes = Engine(model, EngineOptions(num_pages=1)).pool.page_bytes
    assert Engine(model, EngineOptions(memory_bytes=7 * page_bytes + 1)).pool.num_pages == 7
    unshared = EngineOptions(max_batch=2, prefix_caching=False)
    assert Engine(model, unshared).pool.num_pages == 2 * 256 // 16, "no more than can be filled"
    kept = Engine(model, EngineOptions(max_batch=2, memory_bytes=100 * page_bytes))
    assert kept.pool.num_pages == 100, "the rest holds prefixes"
    with pytest.raises(InputError, match=f"a page takes {page_bytes}"):
        Engine(model, EngineOptions(memory_bytes=page_bytes - 1))
