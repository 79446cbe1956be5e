import pytest
from scipy import stats
from support.close import assert_close

from qbench.statistics.intervals import share_interval


@pytest.mark.parametrize("num_items", [1, 2, 5, 40, 1000])
def test_interval_matches_scipy(num_items):
    for num_right in {0, 1, num_items // 2, num_items - 1, num_items}:
        expected = stats.binomtest(num_right, num_items).proportion_ci(0.95, method="wilson")
        assert_close(share_interval(num_right, num_items), expected, atol=8 * 2.0**-52)


@pytest.mark.parametrize("num_right", range(6))
def test_five_items_are_never_certain(num_right):
    low, high = share_interval(num_right, 5)
    assert 0 <= low <= num_right / 5 <= high <= 1 and high - low > 0.4


def test_interval_holds_the_truth_as_often_as_stated():
    """Over all shares: with few items the coverage of whole numbers is above and below 95 % in turn."""
    for num_items in (5, 20):
        shares = [(2 * i + 1) / 400 for i in range(200)]
        counts = range(num_items + 1)
        held = [
            sum(
                stats.binom.pmf(k, num_items, share)
                for k in counts
                if share_interval(k, num_items)[0] <= share <= share_interval(k, num_items)[1]
            )
            for share in shares
        ]
        assert 0.94 < sum(held) / len(held) < 0.97


@pytest.mark.parametrize("num_right, num_items", [(0, 0), (3, 2), (-1, 2)])
def test_bad_counts(num_right, num_items):
    with pytest.raises(ValueError, match=f"got {num_right} right of {num_items} items"):
        share_interval(num_right, num_items)
