"""Times and traffic of a phase, on all ranks."""

import threading

import pytest
from support.thread_ranks import model_on, run_ranks

from qbench.run.rank_layout import GATHER, RankLayout
from qbench.run.work import SpeedWork
from qbench.sources import open_source
from qbench.speed import speed_worker
from qbench.speed.rank_bench import measure_exchange, time_ranks

CASE = SpeedWork(pp=16, tg=4, depth=3, repetitions=1)
HIDDEN, FFN, NUM_LAYERS, VOCABULARY = 256, 512, 2, 512  # of rand:tiny


@pytest.mark.parametrize(
    ("layout", "values", "messages"),
    [
        (RankLayout(tp=2), 2 * NUM_LAYERS * 2 * HIDDEN + VOCABULARY, 2 * (NUM_LAYERS * 2 + 1)),
        (
            RankLayout(tp=2, cut=GATHER),
            NUM_LAYERS * (HIDDEN + HIDDEN + FFN + HIDDEN) + VOCABULARY,
            2 * (NUM_LAYERS * 4 + 1),
        ),
        (RankLayout(tp=4), 3 * (4 * NUM_LAYERS * 2 * HIDDEN + VOCABULARY), 4 * 3 * (NUM_LAYERS * 2 + 1)),
        (RankLayout(pp=2), 2 * HIDDEN, 2),
    ],
    ids=str,
)
def test_a_decoded_token_sends_the_formulas_bytes(layout, values, messages):
    def work(ranks):
        return measure_exchange(model_on(ranks, open_source("rand:tiny")), CASE, "tg")

    for found in run_ranks(layout, work):
        assert (found.bytes_per_token, found.messages_per_pass) == (4 * values, messages)
        assert (found.expected_bytes_per_token, found.expected_messages_per_pass) == (4 * values, messages)


def test_ranks_with_different_clocks_stop_after_the_same_round(monkeypatch):
    this = threading.local()

    def clock() -> float:
        this.ticks += 1
        is_slow = this.rank == 1 and this.ticks < 10  # rank 1 alone has a long warm-up
        this.now += 100.0 if is_slow else 1.0
        return this.now

    def work(ranks):
        this.rank, this.ticks, this.now = ranks.rank, 0, 0.0
        _, rounds = time_ranks(model_on(ranks, open_source("rand:tiny")), SpeedWork(pp=8, tg=2, repetitions=5))
        return {phase: samples[0].seconds for phase, samples in rounds.of.items()}

    monkeypatch.setitem(speed_worker.CLOCKS, "wall", clock)
    assert run_ranks(RankLayout(pp=2), work) == [{"pp": [1.0] * 6, "tg": [1.0] * 6}] * 2
