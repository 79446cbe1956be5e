"""95 % intervals: of means of few samples and of blocks of tokens, of shares, of medians; and spreads.

Tokens of one text are not independent, so `block_mean` draws whole blocks. With 20 to 60 blocks, some of them far out
as divergences are, the percentile interval of a bootstrap is too narrow: it takes the spread of the blocks at hand for
the true one. Two others know better: Student's, which reckons with a spread that came out too small, and the
studentized bootstrap, which asks of every resample how many of *its own* standard errors its mean is from the mean of
all, and so reckons with a long tail on one side. Each falls short in other cases, so each end is the farther of
theirs; `test_coverage.py` checks its promise.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import comb, floor, sqrt

import numpy as np

from qbench.statistics.autocorrelation import widening
from qbench.statistics.estimate import ALPHA, CONFIDENCE, Estimate, Z
from quant.present import present


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


# The 2.5 % end of an interval rests on 250 resamples, and a p value can be as small as 2e-4: 0.05 over 250 cells.
RESAMPLES = 9999
SEED = 20240217
CHUNK = 1 << 20  # draws at a time, 8 MiB
EPS = 2.0**-52  # of float64
# With fewer blocks too many resamples draw one of them alone, which has no spread; then Student's law is used.
MIN_BLOCKS = 6


def token_mean(blocks: Sequence[np.ndarray]) -> Estimate:
    """block_mean of per-token values, one array a block."""
    return block_mean([float(np.sum(block, dtype=np.float64)) for block in blocks], [len(block) for block in blocks])


def block_mean(sums: Sequence[float] | np.ndarray, tokens: Sequence[float] | np.ndarray) -> Estimate:
    """Mean of all tokens, where the tokens[i] of block i have the sum sums[i]; p_value is that of mean 0.

    sums, tokens   [blocks]; it takes two that differ in their rate to have an interval and a p value
    raises         ValueError for no tokens
    source         Künsch 1989 (blocks); Efron & Tibshirani 1993, section 12.5 (studentized interval); Cochran 1977,
                   section 6.4 (standard error of a ratio of sums)
    """
    sums, tokens = np.asarray(sums, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
    if not tokens.sum() > 0:
        raise ValueError(f"{len(tokens)} blocks of {tokens.sum():.0f} tokens have no mean, expected at least one token")
    mean = float(sums.sum() / tokens.sum())
    if len(sums) < 2 or not np.isfinite(sums).all():
        return Estimate(mean)
    residuals = sums - mean * tokens  # [n]
    if (np.abs(residuals) <= _rounding(mean, len(sums)) * tokens).all():
        residuals = np.zeros(len(sums))
    error = float(_error(np.square(residuals).sum(), tokens.sum(), len(sums)))
    students = student_estimate(mean, error, len(sums) - 1)
    if not error or len(sums) < MIN_BLOCKS:
        return students
    t = np.sort(_studentized(residuals, tokens))
    with np.errstate(invalid="ignore"):  # between two infinite ones
        ends = np.quantile(t, (1 - ALPHA / 2, ALPHA / 2))
    if not np.isfinite(ends).all():  # of many blocks that are equal, too many resamples have no spread
        return students
    low, high = (mean - error * float(end) for end in ends)
    p_value = max(present(students.p_value), _p_value(t, mean / error))
    return Estimate(mean, error, min(low, present(students.low)), max(high, present(students.high)), p_value)


def _rounding(mean: float, num_blocks: int) -> float:
    """Largest distance from their mean that rounding gives to blocks of one rate.

    Adding n sums of one sign errs by (n - 1) eps / 2 of the total at most, adding tokens, whole numbers, by nothing,
    and the quotient, the product with a block's tokens and the block's own sum by eps / 2 each.
    """
    return (num_blocks + 2) * EPS / 2 * abs(mean)


def _error(squares: float | np.ndarray, tokens: float | np.ndarray, num_blocks: int):
    """Standard error of sum(s) / sum(m) from the sum of squared residuals s - mean * m."""
    return np.sqrt(squares * num_blocks / (num_blocks - 1)) / tokens


def _studentized(residuals: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """(mean of a resample - mean of all) / the resample's own standard error, [RESAMPLES]."""
    num_blocks = len(residuals)
    of_block = np.stack([residuals, tokens, residuals**2, residuals * tokens, tokens**2], axis=1)  # [n, 5]
    parts = []
    for times in _draws(num_blocks):
        shift, total, squares, cross, square_tokens = (times @ of_block).T  # each [R]
        delta = shift / total
        # A resample's residuals are those about its own mean: s - (mean + delta) m. Rounding may leave a hair below 0.
        own = np.maximum(squares - 2 * delta * cross + delta**2 * square_tokens, 0)
        with np.errstate(divide="ignore", invalid="ignore"):  # one block drawn n times has no spread
            parts.append(np.nan_to_num(delta / _error(own, total, num_blocks), posinf=math.inf, neginf=-math.inf))
    return np.concatenate(parts)


def _draws(num_blocks: int) -> Iterable[np.ndarray]:
    """How often each block comes in each resample, [R, n] float64, in parts that make up RESAMPLES."""
    few = RESAMPLES * num_blocks <= CHUNK
    return _few_draws(num_blocks, RESAMPLES) if few else _draw(num_blocks, RESAMPLES)


@lru_cache(maxsize=4)
def _few_draws(num_blocks: int, resamples: int) -> list[np.ndarray]:
    """They hang on nothing but these, and are most of the work of a table's many cells."""
    return list(_draw(num_blocks, resamples))


def _draw(num_blocks: int, resamples: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(SEED)
    step = max(1, CHUNK // num_blocks)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = rng.integers(num_blocks, size=(size, num_blocks)) + num_blocks * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * num_blocks).reshape(size, num_blocks)
        yield times.astype(np.float64)  # NumPy has no fast product of integers


def _p_value(sorted_t: np.ndarray, observed: float) -> float:
    """Two-sided: how often a resample is as far from its mean as zero is from the mean, on the same side."""
    above = len(sorted_t) - np.searchsorted(sorted_t, observed, side="left")
    below = np.searchsorted(sorted_t, observed, side="right")
    return min(1.0, 2 * (1 + float(min(above, below))) / (1 + len(sorted_t)))


def share_interval(num_right: int, num_items: int) -> tuple[float, float]:
    """95 % interval of the share of which so many of `num_items` are right; never empty.

    Shares from which num_right is at most Z of their own standard errors away: |p - share| <= Z sqrt(p (1 - p) / n).
    raises   ValueError for no items
    source   Wilson 1927; Brown, Cai & DasGupta 2001, Statistical Science 16: their choice up to 40 items
    """
    if not 0 <= num_right <= num_items or num_items == 0:
        raise ValueError(f"got {num_right} right of {num_items} items, expected at least one item and no more right")
    share, of_one = num_right / num_items, Z * Z / num_items
    centre = (share + of_one / 2) / (1 + of_one)
    half = sqrt(share * (1 - share) * of_one + of_one**2 / 4) / (1 + of_one)
    # If all or no items are right, one end is 1 or 0 itself, except for rounding.
    return (0.0 if num_right == 0 else centre - half), (1.0 if num_right == num_items else centre + half)


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
