"""Power of a comparison: the smallest difference that it would have detected."""

from math import ceil, log, log2, sqrt
from statistics import NormalDist

from qbench.statistics.estimate import ALPHA, Estimate

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
