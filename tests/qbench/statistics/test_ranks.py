from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats
from support.close import assert_close

from qbench.statistics.ranks import _rank_sum_counts, _signed_rank_counts, centre_of_pairs, centre_of_samples


def test_signed_rank_counts_are_those_of_all_choices():
    sums = [
        sum(rank for rank, chosen in zip(range(1, 8), choice, strict=True) if chosen)
        for choice in product((0, 1), repeat=7)
    ]
    assert _signed_rank_counts(7).tolist() == np.bincount(sums).tolist()


def test_rank_sum_counts_are_those_of_all_orders():
    below = [sum(place - i for i, place in enumerate(places)) for places in combinations(range(9), 4)]
    assert _rank_sum_counts(4, 5).tolist() == np.bincount(below).tolist()


@pytest.mark.parametrize("n", [6, 9, 25, 61, 200])
def test_p_value_of_pairs_is_wilcoxons(n):
    values = np.random.default_rng(n).normal(0.3, 1.0, n)
    expected = stats.wilcoxon(values, method="exact" if n <= 60 else "approx", correction=True).pvalue
    assert_close(centre_of_pairs(values).p_value, expected, rtol=1e-9)


@pytest.mark.parametrize("n, m", [(4, 4), (5, 9), (40, 31), (41, 50)])
def test_p_value_of_samples_is_mann_whitneys(n, m):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0.0, 1.0, n), rng.normal(0.5, 1.0, m)
    expected = stats.mannwhitneyu(a, b, method="exact" if n <= 40 else "asymptotic").pvalue
    assert_close(centre_of_samples(a, b).p_value, expected, rtol=1e-9)


def test_interval_of_six_pairs_is_their_range():
    found = centre_of_pairs(np.array([3.0, 1.0, 2.0, 6.0, 4.0, 5.0]))
    assert (found.value, found.low, found.high) == (3.5, 1.0, 6.0)


@pytest.mark.parametrize("centre", [0.0, 0.4])
def test_p_value_is_below_5_percent_where_the_interval_leaves_out_zero(centre):
    rng = np.random.default_rng(3)
    for n in range(6, 30):
        found = centre_of_pairs(rng.normal(centre, 1.0, n))
        assert (found.p_value < 0.05) == (not found.low <= 0 <= found.high)
        apart = centre_of_samples(rng.normal(0, 1.0, n), rng.normal(centre, 1.0, n))
        assert (apart.p_value < 0.05) == (not apart.low <= 0 <= apart.high)


def test_one_burst_moves_little():
    calm = np.linspace(-1, 1, 15)
    burst = np.append(calm[:-1], 1000.0)
    assert_close(centre_of_pairs(burst).value, centre_of_pairs(calm).value, atol=2 / len(calm))
