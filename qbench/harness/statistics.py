"""Summaries of samples: a block-bootstrap interval for a mean, and median with spread for timings."""

from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000  # the 2.5 % end of an interval then rests on 50 resamples
SEED = 20240217


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its standard error and 95 % interval; None where one block cannot tell."""

    value: float
    error: float | None
    low: float | None
    high: float | None


def bootstrap_mean(blocks: list[np.ndarray] | np.ndarray, transform=lambda mean: mean) -> Estimate:
    """transform(mean over all tokens), with an interval from drawing whole blocks: tokens of one are not independent.

    blocks   per-token values, one array a window or document
    source   Künsch 1989 (blocks); Efron & Tibshirani 1993, chapter 13 (percentile interval)
    """
    sums = np.array([np.sum(block, dtype=np.float64) for block in blocks])
    counts = np.array([len(block) for block in blocks])
    value = float(transform(sums.sum() / counts.sum()))
    if len(sums) < 2 or not np.isfinite(sums).all():
        return Estimate(value, None, None, None)
    drawn = np.random.default_rng(SEED).integers(len(sums), size=(RESAMPLES, len(sums)))
    means = transform(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1))
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(value, float(np.std(means, ddof=1)), float(low), float(high))


def spread(samples: list[float]) -> dict[str, float]:
    """median, min, max and mad (median absolute deviation): one slow repetition moves none but its own end."""
    values = np.asarray(samples, dtype=np.float64)
    median = float(np.median(values))
    return {
        "median": median,
        "min": float(values.min()),
        "max": float(values.max()),
        "mad": float(np.median(np.abs(values - median))),
    }
