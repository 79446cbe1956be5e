"""Verdicts of the equivalence gate."""

import pytest

from qbench.comparison.several_ranks import ABOVE, EQUAL, FLOAT32_DELTA, NOT_EQUAL, WITHIN, verdict
from qbench.measure.quality_figures import AttentionDelta
from qbench.run.options import RunOptions

FLOOR = AttentionDelta(max_logit=0.1, mean_kld=1e-6)


def delta(max_logit, mean_kld=0.0):
    return AttentionDelta(max_logit=max_logit, mean_kld=mean_kld)


@pytest.mark.parametrize(
    ("options", "found", "expected"),
    [
        (RunOptions(division="pp=2"), delta(0.0), EQUAL),
        (RunOptions(division="pp=2"), delta(1e-9), NOT_EQUAL),
        (RunOptions(division="tp=2"), delta(0.2, 1e-6), WITHIN),
        (RunOptions(division="tp=2"), delta(0.2, 1.1e-6), ABOVE),
        (RunOptions(division="tp=2,cut=gather"), delta(1e-9), NOT_EQUAL),
        (RunOptions(division="tp=2,cut=gather", compute="exact"), delta(1e-9), NOT_EQUAL),
        (RunOptions(division="tp=2", compute="float32"), delta(FLOAT32_DELTA), WITHIN),
        (RunOptions(division="tp=2", compute="float32"), delta(2 * FLOAT32_DELTA), ABOVE),
    ],
)
def test_verdict_compares_a_delta_with_its_floor(options, found, expected):
    assert verdict(found, FLOOR, options) == expected
