"""The chance that healthy weights have so lone an outermost magnitude, counted on healthy weights."""

import numpy as np
import pytest
from support.bit_flips import LAWS, SEED

from quant.doctor.extremes import (
    NUM_LARGEST,
    NUM_SMALLEST,
    chance_of_largest,
    chance_of_smallest,
    chance_of_smallest_scale,
)

RUNS = 2000


@pytest.mark.parametrize("law", ["normal", "Student, 3 degrees"])
def test_the_stated_chance_of_a_false_alarm_holds(law):
    """At a chance of 1 %, which can be counted."""
    rng = np.random.default_rng(SEED)
    found = {chance_of_largest: 0, chance_of_smallest: 0}
    for _ in range(RUNS):
        known = np.sort(np.abs(LAWS[law](rng, (16, 256)).ravel()))
        found[chance_of_largest] += chance_of_largest(known[::-1][:NUM_LARGEST]) < 0.01
        found[chance_of_smallest] += chance_of_smallest(known[:NUM_SMALLEST]) < 0.01
    assert max(found.values()) <= RUNS * 0.01 + 3 * (RUNS * 0.01) ** 0.5


def tail(index: float) -> np.ndarray:
    """Magnitudes at the expected places of a tail x^-index, the largest first."""
    return (np.arange(1, NUM_LARGEST + 1) / NUM_LARGEST) ** (-1 / index)


@pytest.mark.parametrize("index", [1.0, 3.0, 20.0])
def test_a_magnitude_that_continues_the_tail_is_no_surprise(index):
    assert chance_of_largest(tail(index)) > 0.1
    assert chance_of_smallest_scale(1 / tail(index)) > 0.1


def test_a_heavier_tail_allows_a_larger_outlier():
    chances = [chance_of_largest([100 * tail(index)[0], *tail(index)[1:]]) for index in (1.0, 3.0, 20.0)]
    assert chances == sorted(chances, reverse=True) and chances[0] > 1e-3 and chances[2] < 1e-9


def test_equal_magnitudes_and_one_double():
    equal = [1.5] * (NUM_LARGEST - 1)
    assert chance_of_largest([1.5, *equal]) == 1.0
    assert chance_of_largest([2.9, *equal]) == 1.0, "no flip moves a weight by less than a factor of 2"
    assert chance_of_largest([3.0, *equal]) < 1e-9


def test_powers_of_two_are_octaves_apart():
    equal = [1.0] * (NUM_LARGEST - 1)
    assert chance_of_largest([4.0, *equal]) > 0.1 and chance_of_largest([2.0**20, *equal]) < 1e-5


def test_the_chance_of_a_small_weight_is_the_share_of_the_line_below_it():
    even = np.arange(1, NUM_SMALLEST + 1) / NUM_SMALLEST
    share = 1e-6
    assert chance_of_smallest([share, *even[1:]]) == pytest.approx((NUM_SMALLEST - 1) * share, rel=0.01)
    crowded = even**4  # four times as many octaves below: a small weight is expected
    assert chance_of_smallest([share, *crowded[1:]]) > 100 * (NUM_SMALLEST - 1) * share
