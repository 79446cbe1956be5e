"""Samples of one thing in a few numbers."""

import numpy as np


def spread(samples: list[float]) -> dict[str, float]:
    """median, min, max and mad (median absolute deviation): one slow repetition moves only its own end."""
    values = np.asarray(samples, dtype=np.float64)
    median = float(np.median(values))
    return {
        "median": median,
        "min": float(values.min()),
        "max": float(values.max()),
        "mad": float(np.median(np.abs(values - median))),
    }
