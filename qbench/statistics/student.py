"""Student's t, for samples that are too few for other methods and follow a normal law."""

import math

import numpy as np

from qbench.statistics.estimate import ALPHA, Estimate


def student_mean(values: np.ndarray) -> Estimate:
    """Mean of values [n]; one has no interval."""
    n = len(values)
    if n < 2:
        return Estimate(float(values.mean()))
    return student_estimate(float(values.mean()), math.sqrt(variance(values) / n), n - 1)


def student_shift(a: np.ndarray, b: np.ndarray) -> Estimate:
    """Mean of b minus that of a, their variances unlike; a side of one sample has no interval.

    source   Welch 1947
    """
    shift = float(b.mean() - a.mean())
    if min(len(a), len(b)) < 2:
        return Estimate(shift)
    of_a, of_b = variance(a) / len(a), variance(b) / len(b)
    total = of_a + of_b
    freedom = total**2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1)) if total else 1
    return student_estimate(shift, math.sqrt(total), freedom)


def variance(values: np.ndarray) -> float:
    """Standard error of a sample; exactly 0 for equal values, whose mean may round to another."""
    return float((values - values[0]).var(ddof=1))


def student_estimate(value: float, error: float, freedom: float) -> Estimate:
    """The value with t errors on either side, t of so many degrees of freedom.

    An error of 0 says nothing about the distance from the true value: samples that happen to be equal are no certainty.
    The estimate then has neither interval nor p value; if all samples are 0 nothing changed, which is p = 1.
    """
    from scipy.special import stdtr, stdtrit  # here, since most importers of this package need no interval

    if not error:
        return Estimate(value) if value else Estimate(0.0, 0.0, 0.0, 0.0, 1.0)
    half = float(stdtrit(freedom, 1 - ALPHA / 2)) * error
    return Estimate(value, error, value - half, value + half, float(2 * stdtr(freedom, -abs(value) / error)))
