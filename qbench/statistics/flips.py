"""Two models on the same yes-no items: who turned which answer."""

from collections.abc import Sequence
from math import comb, sqrt
from statistics import NormalDist
from typing import TypedDict

from qbench.statistics.estimate import ALPHA, Estimate
from quant.errors import InputError

Z = NormalDist().inv_cdf(1 - ALPHA / 2)


class AccuracyDifference(TypedDict):
    difference: Estimate  # accuracy of B minus that of A
    p_value: float
    right_to_wrong: int
    wrong_to_right: int


def accuracy_difference(correct_a: Sequence, correct_b: Sequence) -> AccuracyDifference:
    """The change of accuracy from A to B, item by item.

    correct_a, correct_b   one entry an item, "0110" or [False, True, True, False], in the same order
    raises                 InputError for no items or unlike numbers of them
    source                 McNemar 1947, exact form; Bonett & Price 2012, eq. 2 (interval; Fagerland et al. 2014 find it
                           to cover as it says down to few items)
    """
    right_a, right_b = ([bool(int(item)) for item in side] for side in (correct_a, correct_b))
    num_items = len(right_a)
    if num_items != len(right_b) or not num_items:
        raise InputError(f"{num_items} and {len(right_b)} items do not pair; run both on the same tasks and limit")
    lost = sum(a and not b for a, b in zip(right_a, right_b, strict=True))
    gained = sum(b and not a for a, b in zip(right_a, right_b, strict=True))
    # One item is added to either kind of flip, two to all: an interval of z * error needs that to cover at few flips.
    wider = num_items + 2
    centre = (gained - lost) / wider
    error = sqrt(((gained + lost + 2) / wider - centre**2) / wider)
    p_value = mcnemar_p_value(lost, gained)
    interval = max(-1.0, centre - Z * error), min(1.0, centre + Z * error)
    difference = Estimate((gained - lost) / num_items, error, *interval, p_value)
    return {"difference": difference, "p_value": p_value, "right_to_wrong": lost, "wrong_to_right": gained}


def mcnemar_p_value(lost: int, gained: int) -> float:
    """Two-sided exact test that a flip is as likely to be lost as gained: a fair coin's tail, twice."""
    flips = lost + gained
    tail = sum(comb(flips, k) for k in range(min(lost, gained) + 1))
    return min(1.0, 2 * tail / 2**flips)
