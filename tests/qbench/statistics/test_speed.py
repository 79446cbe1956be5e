import numpy as np
import pytest
from scipy import stats
from support.close import assert_close

from qbench.statistics.speed import speed_ratio
from quant.errors import InputError


def test_interleaving_removes_common_slowdowns():
    rng = np.random.default_rng(1)
    machine = np.exp(rng.normal(0, 0.3, 20))
    a, b = 100 * machine * np.exp(rng.normal(0, 0.01, 20)), 103 * machine * np.exp(rng.normal(0, 0.01, 20))
    paired, apart = speed_ratio(a, b), speed_ratio(a, b, interleaved=False)
    assert paired.p_value < 0.01 and 1.01 < paired.low < 1.03 < paired.high < 1.05
    assert apart.low < 1 < apart.high


@pytest.mark.parametrize("interleaved", [True, False], ids=["interleaved", "apart"])
def test_three_samples_by_students_law(interleaved):
    a, b = np.array([10.0, 12.0, 11.0]), np.array([20.0, 26.0, 23.0])  # no equal neighbours
    found = speed_ratio(a, b, interleaved)
    test = stats.ttest_rel if interleaved else lambda x, y: stats.ttest_ind(x, y, equal_var=False)
    expected = test(np.log(b), np.log(a))
    ends = expected.confidence_interval(0.95)
    assert_close([found.low, found.high], [np.exp(ends.low), np.exp(ends.high)], rtol=1e-12)
    assert_close(found.p_value, expected.pvalue, rtol=1e-10)


def test_slow_spells_that_last_widen_the_interval():
    rng = np.random.default_rng(2)
    noise = rng.normal(0, 0.02, 24)
    spell = np.repeat([0.0, -0.05, 0.02, 0.0], 6)
    apart, together = 100 * np.exp(rng.permutation(noise + spell)), 100 * np.exp(noise + spell)
    ratios = [speed_ratio(np.full(24, 100.0), samples) for samples in (apart, together)]
    assert_close(ratios[0].value, ratios[1].value, rtol=1e-12)
    assert ratios[1].high - ratios[1].low > 1.5 * (ratios[0].high - ratios[0].low)


def test_one_round_has_no_interval():
    found = speed_ratio([10.0], [12.0])
    assert (found.value, found.low, found.p_value) == (pytest.approx(1.2), None, None)


def test_equal_samples_are_the_same():
    found = speed_ratio([10.0] * 8, [10.0] * 8)
    assert (found.value, found.low, found.high, found.p_value) == (1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "a, b", [([], []), ([1.0, 0.0], [1.0, 1.0]), ([1.0, 2.0], [1.0])], ids=["none", "zero", "unlike rounds"]
)
def test_bad_samples(a, b):
    with pytest.raises(InputError):
        speed_ratio(a, b)
