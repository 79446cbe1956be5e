import pytest
from scipy import stats
from support.close import assert_close

from qbench.statistics.verdict import accuracy_difference, mcnemar_p_value
from quant.errors import InputError


def test_flips_by_hand():
    found = accuracy_difference("1111100000", "1100010000")
    assert (found["right_to_wrong"], found["wrong_to_right"]) == (3, 1)
    assert_close(found["difference"].value, -0.2)
    assert_close(found["p_value"], 2 * (1 + 4) / 2**4)


@pytest.mark.parametrize("lost, gained", [(0, 0), (1, 0), (0, 5), (6, 0), (9, 21), (300, 240)])
def test_p_value_is_the_binomial_tests(lost, gained):
    expected = stats.binomtest(lost, lost + gained).pvalue if lost + gained else 1.0
    assert_close(mcnemar_p_value(lost, gained), expected, rtol=1e-11)


def test_interval_widens_if_nothing_flipped():
    difference = accuracy_difference("01" * 50, "01" * 50)["difference"]
    assert difference.value == 0 and difference.low < 0 < difference.high
    assert difference.p_value == 1


def test_interval_stays_within_possible_differences():
    difference = accuracy_difference("111", "000")["difference"]
    assert -1 <= difference.low <= difference.high <= 1


@pytest.mark.parametrize("a, b", [("", ""), ("10", "101")], ids=["none", "unlike"])
def test_items_that_do_not_pair(a, b):
    with pytest.raises(InputError, match="do not pair"):
        accuracy_difference(a, b)
