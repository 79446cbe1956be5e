"""A 95 % interval for a median that supposes nothing of the distribution of its samples."""

from math import comb, floor

from qbench.statistics.autocorrelation import widening

CONFIDENCE = 0.95


def median_interval(samples: list[float]) -> tuple[float, float] | None:
    """(low, high): the samples so many from either end, in the order in which they were taken; None where too few.

    The true median is outside (x_(r), x_(n+1-r)) when fewer than r of n samples fall on one side of it, each with
    probability 1/2: that takes 6 samples. Neighbours that resemble each other count for fewer: r moves out from the
    middle as far as the interval of a mean widens.
    source   Conover 1999, Practical Nonparametric Statistics, section 3.2
    """
    count = len(samples)
    rank = independent_rank(count)
    if rank:
        middle = (count + 1) / 2
        rank = floor(middle - (middle - rank) * widening(samples))
    ordered = sorted(samples)
    return (ordered[rank - 1], ordered[count - rank]) if rank >= 1 else None


def independent_rank(count: int) -> int:
    """The largest r for which fewer than r samples fall on one side of the median at most in 5 % of cases; 0: no such
    r.
    """
    outside, rank = 0.0, 0
    while rank < count:
        outside += 2 * comb(count, rank) / 2**count  # of exactly `rank` samples on one side, for both sides
        if outside > 1 - CONFIDENCE:
            break
        rank += 1
    return rank
