"""Student's t, where there are too few samples for anything but a normal law."""

import math

import numpy as np

from qbench.statistics.estimate import ALPHA, Estimate


def student_mean(values: np.ndarray) -> Estimate:
    """Mean of values [n]; one has no interval."""
    n = len(values)
    if n < 2:
        return Estimate(float(values.mean()))
    return student_estimate(float(values.mean()), math.sqrt(values.var(ddof=1) / n), n - 1)


def student_shift(a: np.ndarray, b: np.ndarray) -> Estimate:
    """Mean of b minus that of a, their variances unlike; a side of one sample has no interval.

    source   Welch 1947
    """
    shift = float(b.mean() - a.mean())
    if min(len(a), len(b)) < 2:
        return Estimate(shift)
    of_a, of_b = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    total = of_a + of_b
    freedom = total**2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1)) if total else 1
    return student_estimate(shift, math.sqrt(total), freedom)


def student_estimate(value: float, error: float, freedom: float) -> Estimate:
    """The value with t errors on either side, t of so many degrees of freedom."""
    from scipy.special import stdtr, stdtrit  # here, since most of what imports this package asks for no interval

    if not error:
        return Estimate(value, 0.0, value, value, float(value == 0))
    half = float(stdtrit(freedom, 1 - ALPHA / 2)) * error
    return Estimate(value, error, value - half, value + half, float(2 * stdtr(freedom, -abs(value) / error)))
