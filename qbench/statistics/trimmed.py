"""Where samples centre when a busy machine slows some of them: without the outer fifth at either end.

A burst that hits a few rounds then moves neither the centre nor its error much. Ranks bear bursts too, but five samples
a side have no smaller p value than 0.008 however far apart they lie, which no correction for a table survives.
"""

import math

import numpy as np

from qbench.statistics.estimate import Estimate
from qbench.statistics.student import student_estimate, variance

# Of samples left out at either end: bears bursts in up to a fifth, and costs a tenth of the width where there are none.
TRIM = 0.2


def trimmed_mean(values: np.ndarray) -> Estimate:
    """Mean of the middle of values [n], interval and p value by Student's law; one value has no interval.

    source   Tukey & McLaughlin 1963, with the variance of Yuen 1974
    """
    if len(values) < 2:
        return Estimate(float(values.mean()))
    mean, squared_error, freedom = _middle(values)
    return student_estimate(mean, math.sqrt(squared_error), freedom)


def trimmed_shift(a: np.ndarray, b: np.ndarray) -> Estimate:
    """That of b minus that of a, their spreads unlike; a side of one value has no interval.

    source   Yuen 1974
    """
    if min(len(a), len(b)) < 2:
        return Estimate(float(np.median(b) - np.median(a)))
    (of_a, variance_a, freedom_a), (of_b, variance_b, freedom_b) = _middle(a), _middle(b)
    total = variance_a + variance_b
    freedom = total**2 / (variance_a**2 / freedom_a + variance_b**2 / freedom_b) if total else 1.0
    return student_estimate(of_b - of_a, math.sqrt(total), freedom)


def _middle(values: np.ndarray) -> tuple[float, float, int]:
    """Mean of the values left, the variance of that mean, and its degrees of freedom.

    The spread is that of all values with each end drawn in to the nearest value left (winsorized).
    """
    n = len(values)
    cut = int(TRIM * n)
    ordered = np.sort(values)
    drawn_in = np.clip(ordered, ordered[cut], ordered[n - cut - 1])
    left = n - 2 * cut
    squares = variance(drawn_in) * (n - 1)
    return float(ordered[cut : n - cut].mean()), squares / (left * (left - 1)), left - 1
