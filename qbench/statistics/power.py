"""What a comparison could have found: the smallest difference that it would have called one."""

from math import ceil, log, log2, sqrt
from statistics import NormalDist

from qbench.statistics.estimate import ALPHA, Estimate

POWER = 0.8
NORMAL = NormalDist()


def detectable_difference(estimate: Estimate, *, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """The true difference that a test at alpha finds with this power, where the spread is as here.

    The spread is read from the interval, which is wider than 1.96 errors where the blocks are few.
    """
    if estimate.low is None:
        return None
    return _errors(alpha, power) * (estimate.high - estimate.low) / (2 * NORMAL.inv_cdf(1 - ALPHA / 2))


def detectable_ratio(estimate: Estimate, *, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """The same for a ratio, as its distance from 1 on a logarithmic scale: 0.01 is 1 % (up or down)."""
    if estimate.low is None:
        return None
    return _errors(alpha, power) * log(estimate.high / estimate.low) / (2 * NORMAL.inv_cdf(1 - ALPHA / 2))


def detectable_flips(flips: int, num_items: int, *, alpha: float = ALPHA, power: float = POWER) -> float:
    """The same for a difference of accuracy, from how many items flipped.

    As few flips as can be significant, all one way, are the least that any test finds: 2 / 2**n <= alpha.
    """
    fewest = ceil(log2(2 / alpha))
    return max(fewest, _errors(alpha, power) * sqrt(flips)) / num_items


def _errors(alpha: float, power: float) -> float:
    """Standard errors from no difference to one that is found: to the threshold, and as far again as the power asks."""
    return NORMAL.inv_cdf(1 - alpha / 2) + NORMAL.inv_cdf(power)
