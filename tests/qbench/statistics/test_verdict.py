import pytest

from qbench.statistics.estimate import Estimate
from qbench.statistics.verdict import verdict


@pytest.mark.parametrize(
    "estimate, how, expected",
    [
        pytest.param(Estimate(1.02, 0.005, 1.01, 1.03, 0.001), {"lower_is_better": True}, "worse", id="worse"),
        pytest.param(Estimate(1.02, 0.005, 1.01, 1.03, 0.001), {"lower_is_better": False}, "better", id="better"),
        pytest.param(Estimate(1.02, 0.02, 0.98, 1.06, 0.3), {"lower_is_better": True}, "same", id="unsure"),
        pytest.param(
            Estimate(1.02, 0.005, 1.01, 1.03, 0.001), {"lower_is_better": True, "floor": 0.03}, "same", id="floor"
        ),
        pytest.param(
            Estimate(1.02, 0.005, 1.01, 1.03, 0.001), {"lower_is_better": True, "p_value": 0.2}, "same", id="corrected"
        ),
        pytest.param(Estimate(1.02), {"lower_is_better": True}, None, id="no interval"),
    ],
)
def test_verdict_follows_the_interval(estimate, how, expected):
    assert verdict(estimate, neutral=1, **how) == expected
