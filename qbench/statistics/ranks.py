"""Where differences centre, from ranks: a burst of noise moves one rank, however high it is."""

import math
from collections.abc import Callable
from functools import cache
from statistics import NormalDist

import numpy as np

from qbench.statistics.estimate import ALPHA, Estimate

Z = NormalDist().inv_cdf(1 - ALPHA / 2)
# Fewer have no 95 % interval from ranks: 2 / 2**6 and 2 / comb(8, 4) are the first tails below 5 %.
MIN_PAIRS, MIN_SAMPLES = 6, 4
EXACT_PAIRS, EXACT_SAMPLES = 60, 40  # beyond, the normal approximation is within 1e-3 of the exact tail


def centre_of_pairs(differences: np.ndarray) -> Estimate:
    """Median of all means of two differences, interval and p value by the signed-rank test.

    differences   [n >= MIN_PAIRS]; both sides of a pair see the same noise, so these lie evenly about their centre
    source        Hodges & Lehmann 1963; Wilcoxon 1945; Hollander, Wolfe & Chicken 2014, section 3.3
    """
    n = len(differences)
    first, second = np.triu_indices(n)
    means = (differences[first] + differences[second]) / 2
    if n <= EXACT_PAIRS:
        return _estimate(means, _tail_of(_signed_rank_counts(n)))
    return _estimate(means, _normal_tail(n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)))


def centre_of_samples(a: np.ndarray, b: np.ndarray) -> Estimate:
    """Median of all differences b - a, interval and p value by the rank-sum test.

    a, b     [>= MIN_SAMPLES] each
    source   Hodges & Lehmann 1963; Mann & Whitney 1947; Hollander, Wolfe & Chicken 2014, section 4.3
    """
    n, m = len(a), len(b)
    differences = (b[:, None] - a[None, :]).ravel()
    if max(n, m) <= EXACT_SAMPLES:
        return _estimate(differences, _tail_of(_rank_sum_counts(n, m)))
    return _estimate(differences, _normal_tail(n * m / 2, math.sqrt(n * m * (n + m + 1) / 12)))


def _estimate(contrasts: np.ndarray, tail: Callable[[int], float]) -> Estimate:
    """Median and interval: as many contrasts are cut from either end as leave at most 2.5 % beyond.

    tail   k -> probability that at most k contrasts lie on the far side of the true centre
    """
    ordered = np.sort(contrasts)
    cut = 0
    while cut + 1 < len(ordered) / 2 and tail(cut + 1) <= ALPHA / 2:
        cut += 1
    low, high = float(ordered[cut]), float(ordered[-1 - cut])
    beyond = min(int((contrasts >= 0).sum()), int((contrasts <= 0).sum()))
    return Estimate(float(np.median(ordered)), (high - low) / (2 * Z), low, high, min(1.0, 2 * tail(beyond)))


def _tail_of(counts: np.ndarray) -> Callable[[int], float]:
    below = np.cumsum(counts / counts.sum())
    return lambda k: float(below[min(k, len(below) - 1)])


def _normal_tail(mean: float, deviation: float) -> Callable[[int], float]:
    return lambda k: NormalDist(mean, deviation).cdf(k + 0.5)


@cache
def _signed_rank_counts(n: int) -> np.ndarray:
    """How many of the 2**n choices of ranks out of 1..n have each sum, [n (n + 1) / 2 + 1] float64."""
    counts = np.zeros(n * (n + 1) // 2 + 1)
    counts[0] = 1
    for rank in range(1, n + 1):
        counts[rank:] += counts[:-rank].copy()
    return counts


@cache
def _rank_sum_counts(n: int, m: int) -> np.ndarray:
    """How many of the orders of n and m samples have each number of pairs in which the second is below, [n m + 1].

    The coefficients of the Gaussian binomial: times (1 - q**(m + i)), over (1 - q**i), for each i.
    """
    counts = np.zeros(n * m + 1)
    counts[0] = 1
    for i in range(1, n + 1):
        counts[m + i :] -= counts[: -(m + i)].copy()
        for first in range(i):
            counts[first::i] = np.cumsum(counts[first::i])
    return counts
