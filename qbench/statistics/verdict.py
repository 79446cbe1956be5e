"""Better, same or worse: the verdict on a change, its correction for many comparisons, flips of answers, and power."""

from collections.abc import Sequence
from itertools import accumulate
from math import ceil, comb, log, log2, sqrt
from statistics import NormalDist
from typing import Literal, TypedDict

from qbench.statistics.estimate import ALPHA, Estimate, Z
from quant.errors import InputError

Verdict = Literal["better", "same", "worse"]


def verdict(
    estimate: Estimate,
    *,
    neutral: float,
    lower_is_better: bool,
    p_value: float | None = None,
    floor: float = 0.0,
) -> Verdict | None:
    """Verdict on the change from A to B; None without a p value.

    neutral   1 for a ratio, 0 for a difference
    p_value   corrected for the other comparisons of a table; None: the estimate's own
    floor     distance of the same model from itself: no smaller difference counts, however sure it is
    """
    p_value = estimate.p_value if p_value is None else p_value
    if p_value is None:
        return None
    change = estimate.value - neutral
    if p_value >= ALPHA or abs(change) <= floor:
        return "same"
    return "better" if (change < 0) == lower_is_better else "worse"


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusted p values: called different if below 0.05, all of a table together err in at most 5 % of tables.

    p_values   None: not tested, so that it counts for nothing and stays None
    source     Holm 1979
    """
    tested = {i: p_value for i, p_value in enumerate(p_values) if p_value is not None}
    order = sorted(tested, key=tested.__getitem__)
    stepped = accumulate((tested[i] * (len(order) - rank) for rank, i in enumerate(order)), max)
    adjusted = dict(zip(order, stepped, strict=True))
    return [None if p_value is None else min(adjusted[i], 1.0) for i, p_value in enumerate(p_values)]


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


POWER = 0.8
NORMAL = NormalDist()
WIDTH = 2 * NORMAL.inv_cdf(1 - ALPHA / 2)  # of an interval, in standard errors


def detectable_difference(
    estimate: Estimate, *, floor: float = 0.0, alpha: float = ALPHA, power: float = POWER
) -> float | None:
    """The true difference that is found with this power by a test at alpha, where the spread is as here.

    floor   a difference up to this counts as no difference, however sure it is
    The spread is read from the interval, which is wider than 1.96 errors where the blocks are few.
    """
    if estimate.low is None or estimate.high is None:
        return None
    return _detectable((estimate.high - estimate.low) / WIDTH, floor, alpha, power)


def detectable_ratio(
    estimate: Estimate, *, floor: float = 0.0, alpha: float = ALPHA, power: float = POWER
) -> float | None:
    """The same for a ratio, as its distance from 1 on a logarithmic scale: 0.01 is 1 % (up or down)."""
    if estimate.low is None or estimate.high is None:
        return None
    return _detectable(log(estimate.high / estimate.low) / WIDTH, floor, alpha, power)


def detectable_flips(flips: int, num_items: int, *, alpha: float = ALPHA, power: float = POWER) -> float:
    """The same for a difference of accuracy, from how many items flipped.

    As few flips as can be significant, all one way, are the least that any test finds: 2 / 2**n <= alpha.
    """
    fewest = ceil(log2(2 / alpha))
    return max(fewest, _detectable(sqrt(flips), 0.0, alpha, power)) / num_items


def needed_samples(
    num_samples: int,
    estimate: Estimate,
    *,
    neutral: float,
    floor: float = 0.0,
    alpha: float = ALPHA,
    power: float = POWER,
) -> int | None:
    """Samples in all that would decide a difference as large as this one, so much of it as there is in truth.

    num_samples  behind the estimate: blocks, items, rounds or launches. The error falls with their square root
    neutral      1: a ratio, on a logarithmic scale; 0: a difference
    returns      None without an interval, and for a difference up to the floor, which no number of samples decides
    """
    if estimate.low is None or estimate.high is None:
        return None
    scale = log if neutral else float
    change = abs(scale(estimate.value))
    error = (scale(estimate.high) - scale(estimate.low)) / WIDTH
    if change <= floor or not error:
        return None
    found, of_power = NORMAL.inv_cdf(1 - alpha / 2), NORMAL.inv_cdf(power)
    shares = (found + of_power) * error / change, of_power * error / (change - floor)
    return max(num_samples, ceil(num_samples * max(shares) ** 2))


def _detectable(error: float, floor: float, alpha: float, power: float) -> float:
    """So far beyond the threshold, be it that of the test or the floor, that the power is reached."""
    threshold = max(NORMAL.inv_cdf(1 - alpha / 2) * error, floor)
    return threshold + NORMAL.inv_cdf(power) * error
