"""Cache policies under continuous batching: no schedule changes a greedy text."""

from functools import cache

import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.caches import calibrated_scheme
from support.engine_runs import texts_alone, texts_together

from qbench.run.options import RunOptions
from qbench.runtime import Model, load_model
from qbench.runtime.cache_suits import check_engine_source
from qbench.runtime.engine import Engine, EngineOptions, Request
from qbench.runtime.text.sampling import Sampling
from quant.errors import InputError
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY

SCORED = [
    "h2o:budget=24",
    "tova:budget=20",
    "snapkv:budget=24,window=8",
    "pyramidkv:budget=24,window=4,beta=2",
    "knorm:budget=50%",
    "expected-attention:budget=16",
    "recent:budget=20",
]
BY_HEAD = ["adakv:budget=24,window=8", "fastgen:target=0.6"]
BY_POSITION = ["window:20", "sinks:3+20"]
LATENT_SIZES = {"kv_lora_rank": 64, "qk_rope_head_dim": 16, "max_position_embeddings": 512}
NUM_NEW = 30
CALMER = pytest.mark.exhaustive("the schedule that swaps pages is in every run")
CROWDED = EngineOptions(num_pages=8, max_batch=4, prefill_chunk=24)
SCHEDULES = {
    "all at once": EngineOptions(num_pages=100, max_batch=8, prefill_chunk=256),
    "one by one": EngineOptions(num_pages=100, max_batch=1, prefill_chunk=8),
    "preempted": CROWDED,
    "swapped": EngineOptions(num_pages=8, max_batch=4, prefill_chunk=24, preempt="swap"),
}


def model_of(policy: str, prefill_chunk: int | None = None, kv: str | None = None, kind: str = "llama") -> Model:
    config = small_config(kind, **LATENT_SIZES if kind == "deepseek2" else {"head_dim": 32})
    values = random_weights(config)
    entry = {} if kv is None else {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    formats = {name: "q8_0" for name, value in values.items() if value.ndim == 2}
    options = RunOptions(policy=policy, prefill_chunk=prefill_chunk, compute="exact")
    return load_model(ArraySource(config | entry, values, formats), options)


def requests() -> list[Request]:
    lengths = (50, 7, 33, 17, 64, 1)
    return [
        Request(tuple((7 * i + n) % 150 + 1 for i in range(length)), Sampling(), NUM_NEW, stop_ids=())
        for n, length in enumerate(lengths)
    ]


def run(engine: Engine) -> list[tuple[int, ...]]:
    return texts_together(engine, requests())


def alone(model: Model) -> list[tuple[int, ...]]:
    return texts_alone(model, requests())


@cache
def texts_without_policy() -> list[tuple[int, ...]]:
    return alone(model_of("full"))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "policy, prefill_chunk",
    [*((one, None) for one in SCORED + BY_HEAD + BY_POSITION), (SCORED[0], 16), (BY_HEAD[0], 16)],
)
def test_each_request_gets_its_separate_text(policy: str, prefill_chunk: int | None, schedule: str) -> None:
    model = model_of(policy, prefill_chunk)
    engine = Engine(model, SCHEDULES[schedule])
    expected = alone(model)
    assert run(engine) == expected
    assert engine.pool.num_free == engine.pool.num_pages
    assert expected != texts_without_policy(), "the policy changes some text"


@pytest.mark.parametrize("kv", ["kv-f16", "kv-int8"])
@pytest.mark.parametrize("kind", ["qwen3moe", "llama", "deepseek2"])
def test_formats_and_architectures(kind: str, kv: str) -> None:
    model = model_of("snapkv:budget=24,window=8", 16, kv, kind)
    assert run(Engine(model, CROWDED)) == alone(model)


@pytest.mark.parametrize("schedule", [pytest.param("one by one", marks=CALMER), "swapped"])
@pytest.mark.parametrize("policy", SCORED)
def test_pages_of_latents(policy: str, schedule: str) -> None:
    model = model_of(policy, kind="deepseek2")
    engine = Engine(model, SCHEDULES[schedule])
    assert engine.pool.memories[0].latents is not None
    assert run(engine) == alone(model)
    assert engine.pool.num_free == engine.pool.num_pages


@pytest.mark.parametrize(
    "kind, kv, schedule", [*(("gemma3", None, schedule) for schedule in SCHEDULES), ("gemma2", "kv-int8", "preempted")]
)
def test_a_window_in_some_layers(kind: str, kv: str | None, schedule: str) -> None:
    model = model_of("window", kv=kv, kind=kind)
    engine = Engine(model, SCHEDULES[schedule])
    texts = run(engine)
    assert texts == alone(model)
    assert engine.pool.num_free == engine.pool.num_pages
    assert len(set(texts)) == len(texts), "the texts depend on the prompts"


def test_layers_with_a_window_give_their_pages_back() -> None:
    """After 64 tokens in pages of 16 a window of 24 sees two pages, and the layer that sees all tokens has four."""
    model = model_of("window", kind="gemma3")
    rules = [model.config.attention_rule(layer) for layer in range(model.config.num_layers)]
    num_near = sum(rule.window == 24 for rule in rules)
    assert 0 < num_near < len(rules)
    engine = Engine(model, EngineOptions(num_pages=20, page_size=16, prefill_chunk=16))
    engine.submit(Request(tuple(range(1, 65)), Sampling(), NUM_NEW, stop_ids=()))
    while engine.scheduler.waiting or engine.scheduler.running[0].pending > 1:
        engine.step()
    held = engine.pool.num_pages - engine.pool.num_free
    assert held <= num_near * 3 + (len(rules) - num_near) * 4 < len(rules) * 4


def test_a_window_in_some_layers_lets_a_long_prompt_in() -> None:
    request = Request(tuple(i % 150 + 1 for i in range(200)), Sampling(), NUM_NEW, stop_ids=())
    options = EngineOptions(num_pages=6, page_size=16, prefill_chunk=16)
    engine = Engine(model_of("window", kind="gemma3"), options)
    engine.submit(request)
    while engine.has_work:
        assert all(event.kind != "failed" for event in engine.step())
    with pytest.raises(Exception, match="ask for less"):
        Engine(model_of("full", kind="gemma3"), options).submit(request)


def test_preemption_happens() -> None:
    engine = Engine(model_of("snapkv:budget=24,window=8"), SCHEDULES["swapped"])
    run(engine)
    stats = engine.stats()
    assert stats.preemptions > 0 and stats.swapped_in == stats.swapped_out > 0


def test_evicted_tokens_give_their_pages_back() -> None:
    """After a prompt of 64 tokens in 4 pages, two pages hold a budget of 24."""
    engine = Engine(model_of("h2o:budget=24"), EngineOptions(num_pages=20))
    engine.submit(Request(tuple(range(1, 65)), Sampling(), NUM_NEW, stop_ids=()))
    held = []
    while engine.has_work:
        engine.step()
        held.append(engine.pool.num_pages - engine.pool.num_free)
    assert held[0] == 2 and max(held) == 2


@pytest.mark.parametrize("kind, kv", [("gemma3", None), ("qwen3moe", "kv-fp8"), ("llama", "kv-int4")])
@pytest.mark.parametrize("policy", BY_HEAD)
def test_heads_of_different_lengths_get_their_separate_text(policy: str, kind: str, kv: str | None) -> None:
    model = model_of(policy, 16, kv, kind)
    engine = Engine(model, SCHEDULES["swapped"])
    assert run(engine) == alone(model)
    stats = engine.stats()
    assert stats.swapped_in == stats.swapped_out
    assert stats.swapped_out > 0 or (policy, kind) == (BY_HEAD[1], "llama"), "pages of single heads are swapped"
    assert engine.pool.num_free == engine.pool.num_pages == 8 * model.config.num_layers * model.config.num_kv_heads


def test_an_evicted_token_frees_the_slot_of_its_head() -> None:
    """Pages follow the sum of the heads' lengths, where pages of all heads would follow the longest head."""
    engine = Engine(model_of("adakv:budget=24,window=8,alpha=0"), EngineOptions(num_pages=20, page_size=16))
    engine.submit(Request(tuple(range(1, 65)), Sampling(), NUM_NEW, stop_ids=()))
    engine.step()
    (state,) = engine.scheduler.running
    lengths = [state.sequence.is_held(layer).sum(1) for layer in range(2)]
    assert all(int(its.sum()) == 2 * 24 for its in lengths) and any(its[0] != its[1] for its in lengths), lengths
    expected = sum(-(-length // 16) for its in lengths for length in its.tolist())
    assert engine.pool.num_pages - engine.pool.num_free == expected
    stats = engine.stats()
    assert stats.held_slots == 16 * expected and stats.evicted_slots == 0


def test_scales_of_each_head_are_refused() -> None:
    config = small_config("llama", head_dim=32)
    entry = {CONFIG_KEY: calibrated_scheme("kv-fp8-cal-head").config_entry()}
    model = load_model(ArraySource(config | entry, random_weights(config)), RunOptions(policy=BY_HEAD[0]))
    with pytest.raises(InputError, match="choose a format with a scale per token"):
        Engine(model, CROWDED)


def test_slots_that_no_layer_can_return_are_counted() -> None:
    """PyramidKV keeps more tokens in the first layer than in the last, and a page has all layers."""
    engine = Engine(model_of("pyramidkv:budget=24,window=4,beta=2"), EngineOptions(num_pages=20))
    engine.submit(Request(tuple(range(1, 65)), Sampling(), NUM_NEW, stop_ids=()))
    engine.step()
    (state,) = engine.scheduler.running
    table = state.sequence.table
    stats = engine.stats()
    assert stats.held_slots == 2 * table.longest
    assert stats.evicted_slots == abs(int(table.num_held[0]) - int(table.num_held[1])) > 0


def test_a_budget_lets_a_long_prompt_in() -> None:
    """The peak is a chunk beyond the budget: 24 + 16 tokens in 3 pages, whereas 64 + 30 would take 6."""
    request = Request(tuple(range(1, 65)), Sampling(), NUM_NEW, stop_ids=())
    engine = Engine(model_of("h2o:budget=24", 16), EngineOptions(num_pages=4))
    engine.submit(request)
    while engine.has_work:
        assert all(event.kind != "failed" for event in engine.step())
    with pytest.raises(Exception, match="ask for less"):
        Engine(model_of("full"), EngineOptions(num_pages=4)).submit(request)


def test_prefixes_are_not_shared() -> None:
    engine = Engine(model_of("h2o:budget=24"), EngineOptions(num_pages=100))
    run(engine)
    assert engine.scheduler.tree is None and engine.stats().prefix_lookup_tokens == sum(
        len(one.tokens) for one in requests()
    )


@pytest.mark.parametrize(
    "policy, kind, message",
    [
        ("adakv:budget=24,window=8", "deepseek2", "all heads of .* share the latent of a token"),
        ("h2o:budget=24", "bloom", "ALiBi"),
        ("quest:budget=48", "llama", "the engine does not do"),
        ("oracle:budget=24", "llama", "reads a text twice"),
        ("window", "llama", "all layers of this model attend to all tokens"),
        ("sinks:4+2000", "llama", "the model's context holds"),
    ],
)
def test_policies_that_pages_cannot_have(policy: str, kind: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Engine(model_of(policy, kind=kind), EngineOptions(num_pages=20))
    with pytest.raises(InputError, match=message):  # of the config alone, before any weight is read
        check_engine_source(ArraySource(small_config(kind), {}), RunOptions(policy=policy))
