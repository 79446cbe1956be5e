import numpy as np
import pytest
from scipy import stats
from support.close import assert_close

from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import block_mean, student_mean, student_shift
from qbench.statistics.speed import speed_ratio


def test_equals_scipy():
    a, b = (np.random.default_rng(seed).normal(1.0, 0.3, size) for seed, size in ((0, 7), (1, 12)))
    one, welch = stats.ttest_1samp(a, 0), stats.ttest_ind(b, a, equal_var=False)
    for found, theirs in ((student_mean(a), one), (student_shift(a, b), welch)):
        interval = theirs.confidence_interval(0.95)
        assert_close([found.low, found.high], [interval.low, interval.high], rtol=1e-12)  # scipy's own quantile
        assert_close(found.p_value, theirs.pvalue, rtol=1e-12)


@pytest.mark.parametrize("value", [0.1, 3.0])
@pytest.mark.parametrize("size", [2, 3, 7, 63])
def test_equal_samples_are_no_certainty(size, value):
    """0.1 is no binary fraction: the mean of seven is not 0.1."""
    equal, others = np.full(size, value), np.full(size, 2 * value)
    tokens = np.arange(1, size + 1)
    found = (
        student_mean(equal),
        student_shift(equal, others),
        block_mean(equal * 100, np.full(size, 100)),
        block_mean(value * tokens, tokens),
        speed_ratio(1000 * others, 1000 * equal),
        speed_ratio(1000 * others, 1000 * equal, interleaved=False),
    )
    assert {(one.error, one.low, one.high, one.p_value) for one in found} == {(None, None, None, None)}


def test_two_windows_with_the_same_difference_are_no_certainty():
    assert block_mean([2.0, 2.0], [100, 100]) == Estimate(0.02)


@pytest.mark.parametrize("size", [2, 7])
def test_equal_samples_have_no_change_and_full_certainty(size):
    zeros = np.zeros(size)
    for found in (student_mean(zeros), student_shift(zeros + 5, zeros + 5), block_mean(zeros, zeros + 9)):
        assert found == Estimate(0.0, 0.0, 0.0, 0.0, 1.0)
