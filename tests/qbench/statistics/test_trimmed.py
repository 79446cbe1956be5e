import numpy as np
import pytest
from scipy import stats
from scipy.stats.mstats import winsorize
from support.close import assert_close

from qbench.statistics.trimmed import TRIM, trimmed_mean, trimmed_shift


@pytest.mark.parametrize("n", [2, 4, 5, 6, 9, 10, 31])
def test_mean_and_interval_by_scipys_parts(n):
    values = np.random.default_rng(n).normal(3.0, 1.0, n)
    found = trimmed_mean(values)
    left = n - 2 * int(TRIM * n)
    error = np.sqrt(winsorize(values, (TRIM, TRIM)).var(ddof=1) * (n - 1) / (left * (left - 1)))
    low, high = stats.t.interval(0.95, left - 1, stats.trim_mean(values, TRIM), error)
    assert_close([found.error, found.low, found.high], [error, low, high], rtol=1e-12)


@pytest.mark.parametrize("n, m", [(3, 3), (5, 9), (20, 31)])
def test_p_value_and_interval_of_a_shift_are_scipys(n, m):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0.0, 1.0, n), rng.normal(0.5, 2.0, m)
    found, expected = trimmed_shift(a, b), stats.ttest_ind(b, a, equal_var=False, trim=TRIM)
    ends = expected.confidence_interval(0.95)
    assert_close([found.p_value, found.low, found.high], [expected.pvalue, ends.low, ends.high], rtol=1e-9)


def test_by_hand():
    # The outer one of five at either end is left out: 2, 3, 4 remain, drawn in to 2, 2, 3, 4, 4.
    found = trimmed_mean(np.array([9.0, 2.0, 3.0, -7.0, 4.0]))
    assert_close([found.value, found.error], [3.0, np.sqrt(4 / (3 * 2))], rtol=1e-15)


def test_one_burst_moves_little():
    calm = np.linspace(-1, 1, 15)
    burst = np.append(calm[:-1], 1000.0)
    found, expected = trimmed_mean(burst), trimmed_mean(calm)
    assert_close([found.value, found.high], [expected.value, expected.high], atol=2 / len(calm))


def test_one_value_has_no_interval():
    assert trimmed_mean(np.array([2.0])).low is None
    assert trimmed_shift(np.array([2.0]), np.array([2.0, 3.0])).low is None
