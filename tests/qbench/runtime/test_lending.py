"""Instances that lend pages: a request that outgrows its rank has the text of one rank, and so have all others."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.launched_ranks import run_ranks as run_processes
from support.thread_ranks import run_ranks

from qbench.run.options import RunOptions
from qbench.run.rank_layout import RankLayout
from qbench.runtime import load_model
from qbench.runtime.engine import Engine, EngineOptions, NeverFits, Request
from qbench.runtime.lending import Instance, run_until_done
from qbench.runtime.lending.desk import Desk
from qbench.runtime.lending.instance import Loan, Status, plan_loans
from qbench.runtime.lending.lent_sequence import Debt
from quant.errors import InputError

PAGE = 16
OPTIONS = EngineOptions(num_pages=8, max_batch=4, prefill_chunk=32, prefix_caching=False)  # 128 tokens of each rank
LONG, NUM_NEW = 180, 12


def request(size: int, seed: int, num_new: int = NUM_NEW) -> Request:
    tokens = np.random.default_rng(seed).integers(160, size=size).tolist()
    return Request(tuple(tokens), max_new_tokens=num_new, stop_ids=())


OF_RANKS = [[request(LONG, 1)], [request(20, 2), request(9, 3, 20)]]


def source(kind="llama"):
    config = small_config(kind)
    return ArraySource(config, random_weights(config))


def model_of(weights, impl):
    return load_model(weights, RunOptions(threads=1), impl=impl)


def text(events) -> dict[int, list[int]]:
    tokens: dict[int, list[int]] = {}
    for event in events:
        assert event.kind != "failed", event.error
        if event.kind == "token":
            tokens.setdefault(event.request_id, []).append(event.token)
    return tokens


def alone(weights, requests, impl="reference") -> dict[int, list[int]]:
    engine = Engine(model_of(weights, impl), EngineOptions(num_pages=64, prefill_chunk=32, prefix_caching=False))
    for each in requests:
        engine.submit(each)
    events = []
    while engine.has_work:
        events += engine.step()
    return text(events)


def on_ranks(weights, of_ranks, impl="reference", options=OPTIONS):
    def run(ranks):
        instance = Instance(model_of(weights, impl), options, ranks)
        for each in of_ranks[ranks.rank]:
            instance.submit(each)
        found = text(run_until_done(instance))
        pool = instance.engine.pool
        assert pool.num_free == pool.num_pages and not instance.desk.lent, "all pages are back"
        return found, instance.num_borrowed, instance.num_lent

    return run_ranks(RankLayout(sp=len(of_ranks)), run)


@pytest.mark.parametrize("impl", ["reference", "auto"])
def test_a_request_that_outgrows_its_rank_has_the_text_of_one_rank(impl):
    """180 tokens and 12 new ones are 12 pages; a rank has 8. The other rank runs requests of its own meanwhile."""
    weights = source()
    expected = [alone(weights, requests, impl) for requests in OF_RANKS]
    (first, borrowed, _), (second, _, lent) = on_ranks(weights, OF_RANKS, impl)
    assert [first, second] == expected
    assert borrowed == lent >= 4


def test_a_chunk_is_no_larger_than_the_pool():
    """The prompt of 180 tokens would be one chunk, and a rank has pages for 128 tokens."""
    weights = source()
    found = on_ranks(weights, OF_RANKS, options=replace(OPTIONS, prefill_chunk=256))
    assert [each for each, _, _ in found] == [alone(weights, requests) for requests in OF_RANKS]


@pytest.mark.parametrize("impl", ["reference", "auto"])
def test_sequences_of_equal_lengths_that_owe_unequal_numbers_of_pages(impl):
    """Both requests of rank 0 get chunks of 16 tokens in the same passes, and the longer one borrows first."""
    weights, of_ranks = source(), [[request(110, 1), request(70, 2)], [request(9, 3)]]
    found = on_ranks(weights, of_ranks, impl)
    assert [each for each, _, _ in found] == [alone(weights, requests, impl) for requests in of_ranks]
    assert found[0][1] >= 4


def test_a_debtor_waits_until_others_have_room():
    """Both ranks together have 16 pages, and the requests take 12 and 8 of them."""
    weights, of_ranks = source(), [[request(LONG, 1)], [request(50, 2, 60), request(9, 3)]]
    found = on_ranks(weights, of_ranks)
    assert [each for each, _, _ in found] == [alone(weights, requests) for requests in of_ranks]


def test_two_ranks_lend_to_a_third():
    weights, of_ranks = source(), [[request(20, 5)], [request(230, 1)], []]
    found = on_ranks(weights, of_ranks)
    assert [each for each, _, _ in found] == [alone(weights, requests) for requests in of_ranks]
    assert found[1][1] == found[0][2] + found[2][2] and min(found[0][2], found[2][2]) > 0


def test_lent_pages_without_attention_change_the_text(monkeypatch):
    """So the tests above would see it."""
    weights, attend = source(), Desk.attend

    def forget(desk, debt, layer, q):
        part = attend(desk, debt, layer, q)
        part.lse.fill_(-1e4)
        return part

    monkeypatch.setattr(Desk, "attend", forget)
    assert on_ranks(weights, OF_RANKS)[0][0] != alone(weights, OF_RANKS[0])


def test_bytes_and_messages_of_attention_to_a_loan():
    """Header, queries and answer, per layer and step."""

    def attend(ranks):
        desk = Instance(model_of(source(), "auto"), OPTIONS, ranks).desk
        heads, width = desk.config.num_heads, desk.config.head_dim
        if ranks.rank:
            desk.lent[0, 0] = [0]
            desk.serve(0)
        else:
            desk.owed[1] = 1
            desk.attend(Debt(1, 0, 1), 0, torch.ones(1, heads, 5, width))
        sent = ranks.traffic.num_bytes, ranks.traffic.num_messages
        desk.end_step() if not ranks.rank else None
        return sent, heads, width

    (asked, heads, width), (answered, *_) = run_ranks(RankLayout(sp=2), attend)
    assert asked == (16 + 5 * heads * width * 4, 2)
    assert answered == (5 * heads * (width + 1) * 4, 1)


def test_a_request_that_fits_nowhere_is_refused():
    def submit(ranks):
        instance = Instance(model_of(source(), "reference"), OPTIONS, ranks)
        with pytest.raises(NeverFits, match="257 tokens, but all instances together have 16 pages of 16"):
            instance.submit(request(200, 1, 57))

    run_ranks(RankLayout(sp=2), submit)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("mistral", OPTIONS, "without windows"),
        ("llama", EngineOptions(num_pages=8), "got prefix_caching True"),
    ],
)
def test_impossible_instances_are_refused(kind, options, message):
    def make(ranks):
        with pytest.raises(InputError, match=message):
            Instance(model_of(source(kind), "reference"), options, ranks)

    run_ranks(RankLayout(sp=2), make)


def test_the_smallest_batch_borrows_first_and_the_most_room_lends_first():
    statuses = [Status(5, 0, 3, 9), Status(1, 4, 0, 0), Status(2, 0, 6, 7), Status(1, 5, 0, 2)]
    assert plan_loans(statuses) == [Loan(2, 3, 5), Loan(2, 1, 1), Loan(0, 1, 3)]


def test_no_more_moves_than_is_lacking_movable_and_free():
    assert plan_loans([Status(1, 0, 4, 2), Status(1, 9, 0, 0)]) == [Loan(0, 1, 2)]
    assert plan_loans([Status(1, 0, 4, 9), Status(1, 3, 0, 0)]) == [Loan(0, 1, 3)]
    assert plan_loans([Status(1, 7, 1, 9), Status(1, 7, 1, 9)]) == [], "debtors lend nothing"


DEAD_CREDITOR = """
import os, sys
from test_lending import OF_RANKS, OPTIONS, model_of, source
from qbench.run.rank_layout import RankError, RankLayout
from qbench.runtime.lending import Instance, run_until_done
from qbench.runtime.parallel import join_ranks
ranks = join_ranks(RankLayout(sp=2), 20, sys.argv[1])
instance = Instance(model_of(source(), "auto"), OPTIONS, ranks)
for each in OF_RANKS[ranks.rank]:
    instance.submit(each)
if ranks.rank:
    instance.desk._answer = lambda *asked: os._exit(7)
try:
    run_until_done(instance)
except RankError as error:
    print(error)
"""


def test_a_dead_creditor_is_named_in_one_line():
    """It dies when the debtor asks it for the first time."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})" + DEAD_CREDITOR
    first, second = run_processes(("shm",), ("shm",), code=code)
    assert second.status == 7
    (line,) = first.out.splitlines()
    assert line.startswith("rank 1 on ") and line.endswith("of rank 0; the run is over") and " ended, in round " in line
