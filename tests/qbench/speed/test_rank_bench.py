"""Traffic of a phase, counted on all ranks."""

import pytest
from support.thread_ranks import model_on, run_ranks

from qbench.rank_layout import GATHER, RankLayout
from qbench.sources import open_source
from qbench.speed.rank_bench import measure_exchange
from qbench.speed.speed_case import SpeedCase

CASE = SpeedCase(pp=16, tg=4, depth=3, repetitions=1)
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
