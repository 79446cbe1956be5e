"""Which of the first samples are a warm-up, and which of the others are outliers. Both are kept, and marked."""

import numpy as np

SCALED_MAD = 1.4826  # times the median absolute deviation estimates a normal distribution's standard deviation
PACE = 3.0  # deviations slower than the later half: not at its pace yet
LEAST_FALL = 0.02  # of the pace: a start that is slower by less does not matter
OUTLIER = 3.5  # Iglewicz and Hoaglin 1993, their modified z-score


def warm_up_rounds(seconds: list[float]) -> int:
    """How many of the first samples were taken before the pace was reached.

    The first always: it touches memory and wakes threads. Then those in a row that are slower than the later
    half, whose pace is the one that lasts. At most half of them.
    """
    others = np.asarray(seconds[1:], dtype=np.float64)
    if len(others) < 4:
        return min(1, len(seconds))
    half = len(others) // 2
    later = others[half:]
    pace = np.median(later)
    limit = pace + max(PACE * _deviation(later), LEAST_FALL * pace)
    slow = others[:half] > limit
    return 1 + (half if slow.all() else int(np.argmin(slow)))


def outliers(samples: list[float]) -> list[int]:
    """Indices of samples that are further from the median than nearly all of as many from a normal distribution.

    source   Iglewicz and Hoaglin 1993, How to Detect and Handle Outliers: 0.6745 |x - median| / MAD > 3.5
    """
    values = np.asarray(samples, dtype=np.float64)
    if not len(values):
        return []
    far = np.abs(values - np.median(values)) > OUTLIER * _deviation(values)
    return np.flatnonzero(far).tolist() if len(values) >= 3 else []


def _deviation(values: np.ndarray) -> float:
    return SCALED_MAD * float(np.median(np.abs(values - np.median(values))))
