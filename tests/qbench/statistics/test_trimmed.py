import numpy as np
import pytest
from scipy import stats
from scipy.stats.mstats import winsorize
from support.close import assert_close

from qbench.statistics.trimmed import LEAST_TRIMMED, TRIM, trimmed_mean, trimmed_shift


def share_left_out(n: int) -> float:
    return TRIM if n >= LEAST_TRIMMED else 0.0


@pytest.mark.parametrize("n", [2, 4, 5, 6, 9, 10, 31])
def test_mean_and_interval_by_scipys_parts(n):
    values = np.random.default_rng(n).normal(3.0, 1.0, n)
    found = trimmed_mean(values)
    trim = share_left_out(n)
    left = n - 2 * int(trim * n)
    error = np.sqrt(winsorize(values, (trim, trim)).var(ddof=1) * (n - 1) / (left * (left - 1)))
    low, high = stats.t.interval(0.95, left - 1, stats.trim_mean(values, trim), error)
    assert_close([found.error, found.low, found.high], [error, low, high], rtol=1e-12)


@pytest.mark.parametrize("n, m", [(3, 5), (6, 9), (20, 31)])
def test_p_value_and_interval_of_a_shift_are_scipys(n, m):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0.0, 1.0, n), rng.normal(0.5, 2.0, m)
    found, expected = trimmed_shift(a, b), stats.ttest_ind(b, a, equal_var=False, trim=share_left_out(n))
    ends = expected.confidence_interval(0.95)
    assert_close([found.p_value, found.low, found.high], [expected.pvalue, ends.low, ends.high], rtol=1e-9)


def test_by_hand():
    # The outer one of six at either end is left out: 2, 3, 3, 4 remain, drawn in to 2, 2, 3, 3, 4, 4.
    found = trimmed_mean(np.array([9.0, 2.0, 3.0, -7.0, 4.0, 3.0]))
    assert_close([found.value, found.error], [3.0, np.sqrt(4 / (4 * 3))], rtol=1e-15)


def test_samples_that_resemble_their_neighbours_leave_three_degrees_at_least():
    values = np.random.default_rng(4).normal(3.0, 1.0, 10)
    alone, spells = trimmed_mean(values), trimmed_mean(values, widening=3.0)
    assert_close(spells.error, 3 * alone.error, rtol=1e-12)
    assert_close(spells.high - spells.value, stats.t.ppf(0.975, 3) * spells.error, rtol=1e-12)
    two = trimmed_mean(values[:2], widening=3.0)  # which have one degree, however they hang together
    assert_close(two.high - two.value, stats.t.ppf(0.975, 1) * two.error, rtol=1e-12)


def test_one_burst_moves_little():
    calm = np.linspace(-1, 1, 15)
    burst = np.append(calm[:-1], 1000.0)
    found, expected = trimmed_mean(burst), trimmed_mean(calm)
    assert_close([found.value, found.high], [expected.value, expected.high], atol=2 / len(calm))


def test_one_value_has_no_interval():
    assert trimmed_mean(np.array([2.0])).low is None
    assert trimmed_shift(np.array([2.0]), np.array([2.0, 3.0])).low is None
