"""Where samples centre when a busy machine slows some of them: without the outer fifth at either end.

A burst that hits a few rounds then moves neither the centre nor its error much. Ranks bear bursts too, but five samples
per side have no smaller p value than 0.008 however far apart they are, which no correction for a table survives. With
fewer than six samples all count.
"""

import math

import numpy as np

from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import student_estimate, variance

# Share of samples left out at each end: bears bursts in up to a fifth, and costs a tenth of the width without bursts.
TRIM = 0.2
# With fewer samples all are kept: the middle three of five have a t of two degrees, which is half as wide again as
# all five's, and a burst among so few is no rare event that a centre could leave aside.
LEAST_TRIMMED = 6
# Samples that resemble their neighbours count for fewer, but for no fewer than these degrees. With ten or fewer samples
# the correlation itself is a guess: t of one degree, 12.7, would make every tenth interval six times as wide as the
# others, and hold the truth hardly more often (tests/qbench/statistics/test_coverage.py).
LEAST_FREEDOM = 3.0


def trimmed_mean(values: np.ndarray, widening: float = 1.0) -> Estimate:
    """Mean of the middle of values [n], interval and p value by Student's law; one value has no interval.

    widening   of `autocorrelation`, for values that resemble their neighbours
    source   Tukey & McLaughlin 1963, with the variance of Yuen 1974
    """
    if len(values) < 2:
        return Estimate(float(values.mean()))
    mean, squared_error, freedom = _middle(values, widening)
    return student_estimate(mean, math.sqrt(squared_error), freedom)


def trimmed_shift(a: np.ndarray, b: np.ndarray, widenings: tuple[float, float] = (1.0, 1.0)) -> Estimate:
    """That of b minus that of a, their spreads unlike; a side of one value has no interval.

    widenings  of a and b, as above
    source   Yuen 1974
    """
    if min(len(a), len(b)) < 2:
        return Estimate(float(np.median(b) - np.median(a)))
    (of_a, variance_a, freedom_a), (of_b, variance_b, freedom_b) = map(_middle, (a, b), widenings)
    total = variance_a + variance_b
    freedom = total**2 / (variance_a**2 / freedom_a + variance_b**2 / freedom_b) if total else 1.0
    return student_estimate(of_b - of_a, math.sqrt(total), freedom)


def _middle(values: np.ndarray, widening: float) -> tuple[float, float, float]:
    """Mean of the values left, the variance of that mean, and its degrees of freedom.

    The spread is that of all values with each end drawn in to the nearest value left (winsorized). n values whose mean
    errs by `widening` as much as that of independent ones count as n / widening**2 of those, and of their own
    spread, too.
    """
    n = len(values)
    cut = int(TRIM * n) if n >= LEAST_TRIMMED else 0
    ordered = np.sort(values)
    drawn_in = np.clip(ordered, ordered[cut], ordered[n - cut - 1])
    left = n - 2 * cut
    of_mean = variance(drawn_in) * (n - 1) / (left * (left - 1))
    freedom = max(left / widening**2 - 1, min(LEAST_FREEDOM, left - 1))
    return float(ordered[cut : n - cut].mean()), of_mean * widening**2, freedom
