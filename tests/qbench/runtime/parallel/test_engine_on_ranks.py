"""The engine on several ranks: rank 0 schedules, the others follow, and the text is that of one rank."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.thread_ranks import model_on, run_ranks

from qbench.run.options import RunOptions
from qbench.run.rank_layout import GATHER, RankLayout
from qbench.runtime import load_model
from qbench.runtime.engine import Engine, EngineOptions, Request
from qbench.runtime.parallel import leading
from qbench.runtime.parallel.follow import follow
from qbench.runtime.parallel.orders import Kind, pack, unpack
from qbench.serve.engine_thread import EngineThread

FEW_PAGES = EngineOptions(num_pages=12, max_batch=4, prefill_chunk=24)  # too few for all requests: some are preempted


def requests() -> list[Request]:
    """Prompts, some with the same beginning, so that they share pages and then write to them."""
    random = np.random.default_rng(3)
    document = random.integers(160, size=37).tolist()
    prompts = [random.integers(160, size=size).tolist() for size in (5, 50, 23)]
    prompts += [[*document, 7], [*document, 9, 11], [*document]]
    return [Request(tuple(prompt), max_new_tokens=60, stop_ids=()) for prompt in prompts]


def texts(model, options: EngineOptions) -> tuple[list[list[int]], Engine]:
    engine = Engine(model, options)
    ids = [engine.submit(request) for request in requests()]
    tokens = {request_id: [] for request_id in ids}
    while engine.has_work:
        for event in engine.step():
            if event.kind == "token":
                tokens[event.request_id].append(event.token)
    return list(tokens.values()), engine


def on_ranks(source, layout: RankLayout, options: EngineOptions, work=texts):
    def run(ranks):
        model = model_on(ranks, source)
        if ranks.rank:
            return follow(model)
        model.lead()
        found = work(model, options)
        ranks.before_parting()
        return found

    return run_ranks(layout, run)[0]


@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        ("llama", RankLayout(tp=2, cut=GATHER)),
        ("llama", RankLayout(pp=2)),
        ("llama", RankLayout(pp=2, micro_batches=2)),
        ("mistral", RankLayout(tp=2, pp=2, cut=GATHER)),
        ("deepseek2", RankLayout(pp=2)),
    ],
    ids=str,
)
def test_greedy_text_is_that_of_one_rank(kind, layout):
    config = small_config(kind)
    source = ArraySource(config, random_weights(config))
    expected, alone = texts(load_model(source, RunOptions(threads=1)), FEW_PAGES)
    found, engine = on_ranks(source, layout, FEW_PAGES)
    assert found == expected
    stats = engine.stats()
    assert stats.preemptions == alone.stats().preemptions > 0 and stats.prefix_hit_tokens > 0


def test_a_follower_without_the_copies_of_pages_computes_another_text(monkeypatch):
    """So the test above sees a copy that is not followed."""
    monkeypatch.setattr(
        "qbench.runtime.caches.places.pages.PagePool.on_copy", property(lambda pool: None, lambda *_: None)
    )
    config = small_config("llama")
    source = ArraySource(config, random_weights(config))
    expected, _ = texts(load_model(source, RunOptions(threads=1)), FEW_PAGES)
    found, _ = on_ranks(source, RankLayout(tp=2, cut=GATHER), FEW_PAGES)
    assert found != expected


def test_batches_may_have_a_separate_cache():
    from qbench.throughput.sides import StaticSide
    from qbench.throughput.workload import Job

    config = small_config("llama")
    source = ArraySource(config, random_weights(config))
    jobs = [Job(request.tokens, 5) for request in requests()]

    def static(model, options):
        return StaticSide(model, 3).run(jobs).tokens

    expected = static(load_model(source, RunOptions(threads=1)), FEW_PAGES)
    assert on_ranks(source, RankLayout(tp=2, cut=GATHER), FEW_PAGES, static) == expected


def test_followers_go_back_with_rank_0():
    def gone_back(model, options):
        cache = model.new_cache(1, 64)
        model(torch.arange(20)[None], cache)
        cache.truncate(7)
        return model(torch.arange(30, 40)[None], cache)

    config = small_config("llama")
    source = ArraySource(config, random_weights(config))
    expected = gone_back(load_model(source, RunOptions(threads=1)), FEW_PAGES)
    assert torch.equal(on_ranks(source, RankLayout(tp=2, cut=GATHER), FEW_PAGES, gone_back), expected)


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_an_error_of_the_engine_ends_a_server_only_on_ranks(num_ranks):
    error, ended = ArithmeticError("wrong"), []
    model = SimpleNamespace(idle_s=None if num_ranks == 1 else 10.0)
    thread = EngineThread(SimpleNamespace(model=model, has_work=True), None)
    thread._engine.step = lambda: (_ for _ in ()).throw(error)
    thread.on_lost = lambda: ended.append(True)
    thread._commands.put(thread._stop)  # after the step that fails
    thread._run()
    assert (thread.lost, ended) == ((None, []) if num_ranks == 1 else (error, [True]))


def test_orders_arrive_as_they_were_sent():
    arrays = [np.array([1, 2**31 - 1]), np.empty((0, 2), np.int64), np.arange(6).reshape(2, 3)]
    kind, found = unpack(pack(Kind.PASS, arrays))
    assert kind == Kind.PASS
    for array, other in zip(arrays, found, strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize("is_due", [False, True])
def test_commands_without_a_forward_pass_do_not_put_off_an_order(is_due, monkeypatch):
    kinds, send = [], leading.send_order
    monkeypatch.setattr(leading, "send_order", lambda ranks, kind, *arrays: (kinds.append(kind), send(ranks, kind)))

    def obey(model, options):
        model.ranks.meeting.has_ended = lambda rank: False
        thread = EngineThread(SimpleNamespace(model=model), None)
        if is_due:
            model.leading.sent_at -= model.leading.idle_s
        for _ in range(3):
            thread._commands.put(lambda: None)
            thread._obey(wait=True)

    config = small_config("llama")
    on_ranks(ArraySource(config, random_weights(config)), RankLayout(tp=2), FEW_PAGES, obey)
    assert kinds == [Kind.IDLE] * is_due + [Kind.END]


def test_a_rank_that_ended_is_noticed_without_work():
    def idle(model, options):
        model.ranks.meeting.has_ended = lambda rank: True
        with pytest.raises(RuntimeError, match="gone"):
            model.ranks.meeting.error = lambda rank, is_late: RuntimeError("gone")
            model.idle()

    config = small_config("llama")
    on_ranks(ArraySource(config, random_weights(config)), RankLayout(tp=2), FEW_PAGES, idle)
