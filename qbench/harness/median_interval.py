"""A 95 % interval for a median that supposes nothing of the distribution of its samples."""

from math import comb

CONFIDENCE = 0.95


def median_interval(samples: list[float]) -> tuple[float, float] | None:
    """(low, high): the samples so many from either end; None for fewer than 6, whose ends are not apart enough.

    The true median lies outside (x_(r), x_(n+1-r)) when fewer than r of n samples fall on one side of it, each with
    probability 1/2. r is the largest number for which that is so at most in 5 % of cases.
    source   Conover 1999, Practical Nonparametric Statistics, section 3.2
    """
    count = len(samples)
    outside, rank = 0.0, 0
    while rank < count:
        outside += 2 * comb(count, rank) / 2**count  # of exactly `rank` samples on one side, for both sides
        if outside > 1 - CONFIDENCE:
            break
        rank += 1
    ordered = sorted(samples)
    return (ordered[rank - 1], ordered[count - rank]) if rank else None
