"""Super-blocks of 256 weights with two levels of scales and no minima: what Q3_K, Q6_K and IQ4_XS have in common."""

from typing import NamedTuple

import numpy as np

from quant.formats.half import inverse, to_half
from quant.formats.levels import Levels
from quant.formats.linear_fit import Runs, Search, fit_scale, runs_of, saturate, signed_extreme, sum_in_order


class KLinear(NamedTuple):
    """weight ~= d * scales * the level nearest to y"""

    d: np.ndarray  # [B] float32, exact in float16
    scales: np.ndarray  # [B, R] float32, whole numbers
    y: np.ndarray  # [B, R, n] float32


def fit_k_linear(
    blocks: np.ndarray, importance: np.ndarray | None, num_runs: int, levels: Levels, scale_range: int, search: Search
) -> KLinear:
    """Both levels of scales of super-blocks of `num_runs` runs; scales lie in -scale_range..scale_range - 1.

    blocks, importance   [B, 256] float32
    """
    runs = runs_of(saturate(blocks, scale_range * levels.reach), importance, num_runs, levels)
    d, scales = _whole_scales(fit_scale(runs, search).reshape(-1, num_runs), scale_range)
    d = _refit(scales, *_sums(runs, d, scales))
    for _ in range(search.num_rounds):
        scales, sums = _better_neighbours(runs, d, scales, scale_range)
        d = _refit(scales, *sums)
    y = runs.x * inverse(d[:, None] * scales).reshape(-1)
    return KLinear(d, scales, y.T.reshape(len(blocks), num_runs, -1))


def _whole_scales(scale: np.ndarray, scale_range: int) -> tuple[np.ndarray, np.ndarray]:
    """scale [B, R] -> d [B] float32 exact in float16, scales [B, R] float32 in -scale_range..scale_range - 1

    The scale of largest magnitude takes -scale_range, one step further than the other end reaches.
    """
    extreme = signed_extreme(scale.max(axis=1), scale.min(axis=1))
    d = to_half(extreme * np.float32(-1 / scale_range)).astype(np.float32)  # a power of two: exact
    return d, np.rint(np.clip(scale * inverse(d)[:, None], -scale_range, scale_range - 1))


def _sums(runs: Runs, d: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`Runs.sums` [B, R] of the scales as they are stored."""
    sum_vv, sum_vx = runs.sums(inverse(d[:, None] * scales).reshape(-1))
    return sum_vv.reshape(scales.shape), sum_vx.reshape(scales.shape)


def _better_neighbours(
    runs: Runs, d: np.ndarray, scales: np.ndarray, scale_range: int
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Each scale, or the whole number below or above it where that has less squared error; and the sums there."""

    def gain_of(scales: np.ndarray, sum_vv: np.ndarray, sum_vx: np.ndarray) -> np.ndarray:
        scale = d[:, None] * scales
        return scale * ((sum_vx + sum_vx) - scale * sum_vv)

    best_scales, best_sums = scales, _sums(runs, d, scales)
    best_gain = gain_of(scales, *best_sums)
    for step in (-1, 1):
        trial = np.clip(scales + np.float32(step), -scale_range, scale_range - 1)
        trial_sums = _sums(runs, d, trial)
        gain = gain_of(trial, *trial_sums)
        better = gain > best_gain
        best_gain = np.where(better, gain, best_gain)
        best_scales = np.where(better, trial, best_scales)
        best_sums = (np.where(better, trial_sums[0], best_sums[0]), np.where(better, trial_sums[1], best_sums[1]))
    return best_scales, best_sums


def _refit(scales: np.ndarray, sum_vv: np.ndarray, sum_vx: np.ndarray) -> np.ndarray:
    """d [B] float32, exact in float16, of least squared error for levels and scales as they are."""
    aa, ax = sum_in_order((scales * sum_vv * scales).T), sum_in_order((scales * sum_vx).T)
    return to_half(ax * inverse(aa)).astype(np.float32)
