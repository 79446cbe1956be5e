"""Nearest points of a grid with signs, and the scales of super-blocks of them: the search of the lattice formats."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quant.formats.bits import HALF_MAX, inverse, to_half
from quant.formats.linear_fit import SMALLEST_EXTREME, Search, sum_in_order

NUM_SCALES = 16  # of 4 bits: a run's scale is d * unit * (2 * s + 1)
TILE = 64  # vectors whose sums are held at a time: with 1,024 points 256 KiB


@dataclass(frozen=True, slots=True)
class Lattice:
    """A grid of magnitudes, with the layout of its signs and scales.

    levels     [L] float32, the magnitudes of one weight
    first      [P] number of the point's first half among the L^(size / 2) combinations of levels
    second     [P] the same of its second half
    points     [P, size] float32
    even       each 8 weights have an even number of negative signs
    unit       the scale of a run is d * unit * (2 * s + 1)
    num_runs   runs of a super-block
    """

    levels: np.ndarray
    first: np.ndarray
    second: np.ndarray
    points: np.ndarray
    even: bool
    unit: float
    num_runs: int

    @property
    def reach(self) -> float:
        """The largest weight in units of d."""
        return self.unit * (2 * NUM_SCALES - 1) * float(self.levels[-1])


def lattice_of(points: np.ndarray, *, even: bool, unit: float, num_runs: int) -> Lattice:
    """points [P, 4 or 8] float32"""
    levels, digits = np.unique(points, return_inverse=True)
    digits = digits.reshape(len(points), 2, -1)
    numbers = digits @ len(levels) ** np.arange(digits.shape[2])  # [P, 2]
    return Lattice(levels, numbers[:, 0], numbers[:, 1], points, even, unit, num_runs)


class Chosen(NamedTuple):
    """The points and signs of runs, kept by element."""

    points: np.ndarray  # [n / size, S] numbers of points
    negative: np.ndarray  # [n, S] bool
    sum_vv: np.ndarray  # [S] sum of importance * v^2 over the signed levels v
    sum_vx: np.ndarray  # [S] sum of importance * v * x


@dataclass(frozen=True, slots=True)
class LatticeRuns:
    """Runs of n weights that share a scale, kept by element; sums go from the first element to the last.

    x, importance   [n, S] float32
    """

    x: np.ndarray
    importance: np.ndarray
    lattice: Lattice

    def choose(self, per_scale: np.ndarray) -> Chosen:
        """The nearest points for weights of x * per_scale; per_scale [S] float32"""
        lattice, importance = self.lattice, self.importance
        y = np.abs(self.x) * per_scale
        negative = self.x < 0
        if lattice.even:
            flipped = _flips(y, importance, negative, lattice.levels)
            y, negative = np.where(flipped, -y, y), negative ^ flipped
        gains = _gains(y, importance, lattice.levels)  # [n, L, S]
        size = lattice.points.shape[1]
        points = np.stack([_best_points(vector, lattice) for vector in gains.reshape(-1, size, *gains.shape[1:])])
        v = np.moveaxis(lattice.points[points], 2, 1).reshape(self.x.shape)
        v = np.where(negative, -v, v)
        weighted = importance * v
        return Chosen(points, negative, sum_in_order(weighted * v), sum_in_order(weighted * self.x))


def _gains(y: np.ndarray, importance: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """[n, S] -> [n, L, S]: squared error of predicting 0, less that of each level"""
    wy = importance * y
    level = levels[:, None]
    return level * ((wy + wy)[:, None] - level * importance[:, None])


def _flips(y: np.ndarray, importance: np.ndarray, negative: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Signs to change, [n, S] bool: in each 8 weights of an odd number of negative ones, the sign that costs least."""
    lost = _gains(y, importance, levels).max(axis=1) - _gains(-y, importance, levels).max(axis=1)  # [n, S]
    eights = lost.reshape(-1, 8, lost.shape[1])
    cheapest = eights.argmin(axis=1)[:, None] == np.arange(8)[:, None]
    odd = np.logical_xor.reduce(negative.reshape(eights.shape), axis=1)[:, None]
    return (cheapest & odd).reshape(y.shape)


def _best_points(gains: np.ndarray, lattice: Lattice) -> np.ndarray:
    """gains [size, L, S] of each element's levels -> [S] number of the point with the largest sum, the first of ties"""
    half = len(gains) // 2
    first, second = _combinations(gains[:half]), _combinations(gains[half:])
    best = np.empty(gains.shape[2], dtype=np.int64)
    for start in range(0, len(best), TILE):
        tile = slice(start, start + TILE)
        sums = np.take(first[:, tile], lattice.first, axis=0)  # [P, TILE]
        sums += np.take(second[:, tile], lattice.second, axis=0)
        best[tile] = sums.argmax(axis=0)
    return best


def _combinations(gains: np.ndarray) -> np.ndarray:
    """[m, L, S] -> [L^m, S]: sums of one level of each element, the first element's level the lowest digit"""
    total = gains[0]
    for gain in gains[1:]:
        total = (total + gain[:, None]).reshape(-1, total.shape[1])
    return total


class LatticeBlocks(NamedTuple):
    """Super-blocks as they are stored."""

    d: np.ndarray  # [B] float16
    scales: np.ndarray  # [B, R] uint8 in 0..15
    points: np.ndarray  # [B, 256 / size] numbers of points
    signs: np.ndarray  # [B, 32] uint8, bit i set: the i-th of 8 weights is negative


def fit_lattice(blocks: np.ndarray, importance: np.ndarray | None, lattice: Lattice, search: Search) -> LatticeBlocks:
    """Scales, points and signs of little squared error.

    blocks, importance   [B, 256] float32
    """
    limit = np.float32(lattice.reach) * HALF_MAX
    weights = np.ones_like(blocks) if importance is None else importance
    size = blocks.shape[1] // lattice.num_runs
    x, w = (np.ascontiguousarray(part.reshape(-1, size).T) for part in (np.clip(blocks, -limit, limit), weights))
    runs = LatticeRuns(x, w, lattice)
    d, scales = _whole_scales(_fit_scale(runs, search).reshape(-1, lattice.num_runs), lattice)
    for _ in range(search.num_rounds):
        scales, sums = _better_neighbours(runs, d, scales)
        d = _refit(scales, *sums, lattice)
    chosen = runs.choose(inverse(_run_scale(d, scales, lattice)).reshape(-1))
    d = _refit(scales, *_sums_of(chosen, scales), lattice)
    points = np.ascontiguousarray(chosen.points.T).reshape(len(blocks), -1)
    signs = np.packbits(chosen.negative.T.reshape(len(blocks), 32, 8), axis=2, bitorder="little")[:, :, 0]
    return LatticeBlocks(d.astype(np.float16), scales.astype(np.uint8), points, signs)


def _fit_scale(runs: LatticeRuns, search: Search) -> np.ndarray:
    """Scale of each run with the least squared error found, [S] float32 >= 0"""
    extreme = np.abs(runs.x).max(axis=0)
    per_extreme = inverse(np.where(extreme >= SMALLEST_EXTREME, extreme, 0))
    best_scale, best_gain = np.zeros_like(extreme), np.zeros_like(extreme)
    for i in range(len(search.targets) + search.num_refits):
        trial = i < len(search.targets)
        chosen = runs.choose(np.float32(search.targets[i]) * per_extreme if trial else inverse(best_scale))
        scale = chosen.sum_vx * inverse(chosen.sum_vv)
        gain = scale * chosen.sum_vx  # squared error of predicting 0, less that of the fit
        better = gain > best_gain
        best_gain = np.where(better, gain, best_gain)
        best_scale = np.where(better, scale, best_scale)
    return best_scale


def _whole_scales(free: np.ndarray, lattice: Lattice) -> tuple[np.ndarray, np.ndarray]:
    """free [B, R] -> d [B] float32 exact in float16, under which the largest takes 15, and scales [B, R] float32"""
    d = to_half(free.max(axis=1) * np.float32(1 / ((2 * NUM_SCALES - 1) * lattice.unit))).astype(np.float32)
    odd = free * inverse(d * np.float32(lattice.unit))[:, None]
    return d, np.rint(np.clip((odd - 1) * np.float32(0.5), 0, NUM_SCALES - 1))


def _odd(scales: np.ndarray, lattice: Lattice) -> np.ndarray:
    """The scale of each run in units of d, exact"""
    return np.float32(lattice.unit) * (scales + scales + np.float32(1))


def _run_scale(d: np.ndarray, scales: np.ndarray, lattice: Lattice) -> np.ndarray:
    """[B, R] float32, exact"""
    return d[:, None] * _odd(scales, lattice)


def _sums_of(chosen: Chosen, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return chosen.sum_vv.reshape(scales.shape), chosen.sum_vx.reshape(scales.shape)


def _better_neighbours(
    runs: LatticeRuns, d: np.ndarray, scales: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Each scale, or the whole number below or above it if that has less squared error; and the sums there."""
    best_scales, best_sums = scales, (np.zeros_like(scales), np.zeros_like(scales))
    best_gain = np.full_like(scales, -np.inf)
    for step in (0, -1, 1):
        trial = np.clip(scales + np.float32(step), 0, NUM_SCALES - 1)
        scale = _run_scale(d, trial, runs.lattice)
        sum_vv, sum_vx = _sums_of(runs.choose(inverse(scale).reshape(-1)), trial)
        gain = scale * ((sum_vx + sum_vx) - scale * sum_vv)
        better = gain > best_gain
        best_gain = np.where(better, gain, best_gain)
        best_scales = np.where(better, trial, best_scales)
        best_sums = (np.where(better, sum_vv, best_sums[0]), np.where(better, sum_vx, best_sums[1]))
    return best_scales, best_sums


def _refit(scales: np.ndarray, sum_vv: np.ndarray, sum_vx: np.ndarray, lattice: Lattice) -> np.ndarray:
    """d [B] float32, exact in float16, of least squared error for scales, points and signs as they are."""
    odd = _odd(scales, lattice)
    aa, ax = sum_in_order((odd * sum_vv * odd).T), sum_in_order((odd * sum_vx).T)
    return to_half(ax * inverse(aa)).astype(np.float32)
