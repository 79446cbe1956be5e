"""Least squares of one scale for short runs of weights: the search inside every format without a minimum."""

from dataclasses import dataclass

import numpy as np

from quant.formats.bits import HALF_MAX, inverse, to_half
from quant.formats.levels import Levels

# Runs below are all zeros to a float16 scale, whose end is 2**-24; the inverse of less, times a target, may be inf.
SMALLEST_EXTREME = np.float32(2.0**-100)


@dataclass(frozen=True, slots=True)
class Search:
    """How long to look for a scale.

    targets      levels that the weight of largest magnitude is tried at, not necessarily on a level: beyond the
                 outermost it is clipped in favour of a finer step, short of it the outermost levels stay unused
    num_refits   rounds of: levels of the best scale so far, then the best scale of those levels
    num_rounds   formats with two levels of scales: rounds of trying the neighbours of each integer scale
    """

    targets: tuple[float, ...]
    num_refits: int = 0
    num_rounds: int = 0


def even_targets(centre: float, reach: float, count: int) -> tuple[float, ...]:
    """`count` targets evenly spaced over centre +- reach."""
    return tuple(centre - reach + 2 * reach * i / (count - 1) for i in range(count))


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of n weights that share a scale, kept by element: sums over a run are additions of long vectors.

    Every sum goes element by element from the first to the last, and rounds to float32 each time, so that an
    encoder with one run a SIMD lane has the same bits.

    x            [n, S] float32
    importance   [n, S] float32, or None: all 1
    """

    x: np.ndarray
    importance: np.ndarray | None
    levels: Levels

    def sums(self, per_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(sum of v^2, sum of v * x) [S] over the levels v nearest to x * per_scale, weighted by importance."""
        v = self.levels.nearest(self.x * per_scale)
        weighted = v if self.importance is None else self.importance * v
        return sum_in_order(weighted * v), sum_in_order(weighted * self.x)

    def extremes(self) -> np.ndarray:
        """[S] the weight of largest magnitude of each run; the negative one of two."""
        return signed_extreme(self.x.max(axis=0), self.x.min(axis=0))


def runs_of(blocks: np.ndarray, importance: np.ndarray | None, num_runs: int, levels: Levels) -> Runs:
    """The runs of blocks [B, num_runs * n], importance of the same shape or None, block by block."""
    size = blocks.shape[1] // num_runs
    weights = None if importance is None else np.ascontiguousarray(importance.reshape(-1, size).T)
    return Runs(np.ascontiguousarray(blocks.reshape(-1, size).T), weights, levels)


def saturate(blocks: np.ndarray, reach: int) -> np.ndarray:
    """Weights clipped to the largest float16 scale times `reach`."""
    limit = reach * HALF_MAX
    return np.clip(blocks, -limit, limit)


def fit_blocks(
    blocks: np.ndarray, importance: np.ndarray | None, levels: Levels, search: Search
) -> tuple[np.ndarray, np.ndarray]:
    """One float16 scale per block: weight ~= d * the level nearest to y.

    blocks, importance   [B, n] float32
    returns              d [B] float32, exact in float16; y [B, n] float32
    """
    runs = runs_of(saturate(blocks, levels.reach), importance, 1, levels)
    d = to_half(fit_scale(runs, search)).astype(np.float32)
    return d, (runs.x * inverse(d)).T


def fit_scale(runs: Runs, search: Search) -> np.ndarray:
    """Scale of x ~= scale * level with the least squared error found, of either sign.

    returns  scale [S] float32; 0 if nothing is better than all zeros
    """
    extreme = runs.extremes()
    per_extreme = inverse(np.where(np.abs(extreme) >= SMALLEST_EXTREME, extreme, 0))
    best_scale, best_gain = np.zeros_like(per_extreme), np.zeros_like(per_extreme)
    for i in range(len(search.targets) + search.num_refits):
        trial = i < len(search.targets)
        per_scale = np.float32(search.targets[i]) * per_extreme if trial else inverse(best_scale)
        sum_vv, sum_vx = runs.sums(per_scale)
        scale = sum_vx * inverse(sum_vv)
        gain = scale * sum_vx  # squared error of predicting 0, less that of the fit
        better = gain > best_gain
        best_gain = np.where(better, gain, best_gain)
        best_scale = np.where(better, scale, best_scale)
    return best_scale


def signed_extreme(highest: np.ndarray, lowest: np.ndarray) -> np.ndarray:
    """The one of larger magnitude, the lowest if both are equal."""
    return np.where(highest > -lowest, highest, lowest)


def sum_in_order(terms: np.ndarray) -> np.ndarray:
    """[n, ...] -> [...]: ((t0 + t1) + t2) + ..., which NumPy's own sum does not promise"""
    total = np.zeros_like(terms[0])
    for term in terms:
        total += term
    return total
