"""Super-blocks of 256 weights with two levels of scales and no minima: common code of Q3_K, Q6_K and IQ4_XS."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from quant.formats.grid import Grid, GridFormat
from quant.formats.half import HALF_MAX, half_bytes, half_from_bytes, inverse, to_half
from quant.formats.levels import Levels, WholeLevels
from quant.formats.linear_fit import Runs, Search, fit_scale, runs_of, saturate, signed_extreme, sum_in_order


class KLinear(NamedTuple):
    """weight ~= d * scales * the level nearest to y"""

    d: np.ndarray  # [B] float32, exact in float16
    scales: np.ndarray  # [B, R] float32, whole numbers
    y: np.ndarray  # [B, R, n] float32


def fit_k_linear(
    blocks: np.ndarray, importance: np.ndarray | None, num_runs: int, levels: Levels, scale_range: int, search: Search
) -> KLinear:
    """Both levels of scales of super-blocks of `num_runs` runs; scales are in -scale_range..scale_range - 1.

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


class KLinearFormat(GridFormat):
    """weight = d * scales[i] * q, q among `levels`, i the sub-block of 16, scales in -scale_range..scale_range - 1

    byte 0           code_bytes
         +-----------+--------+---+
         | codes     | scales | d |
         +-----------+--------+---+
    """

    block_size = 256
    code_bytes: ClassVar[int]
    levels: ClassVar[WholeLevels]
    scale_range: ClassVar[int]
    searches: ClassVar[Mapping[str, Search]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.largest_weight = cls.scale_range * cls.levels.reach * HALF_MAX

    @abstractmethod
    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        """q [B, ...] 256 whole numbers among `levels` -> uint8 [B, code_bytes]"""

    @abstractmethod
    def pack_scales(self, scales: np.ndarray) -> np.ndarray:
        """scales [B, 16] whole numbers -> uint8 [B, block_bytes - code_bytes - 2]"""

    @abstractmethod
    def unpack_scales(self, data: np.ndarray) -> np.ndarray:
        """The inverse of `pack_scales`, int8"""

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        k = fit_k_linear(blocks, importance, 16, self.levels, self.scale_range, self.searches[effort])
        codes = self.pack_codes(self.levels.nearest(k.y))
        return np.concatenate([codes, self.pack_scales(k.scales), half_bytes(k.d)], axis=1)

    def read_grid(self, data: np.ndarray) -> Grid:
        header = data[:, self.code_bytes :]
        scale = half_from_bytes(header[:, -2:])[:, None] * self.unpack_scales(header[:, :-2])  # [B, 16]
        scale = np.repeat(scale, 16, axis=1)
        return Grid(scale, np.zeros_like(scale), self.levels.lowest, self.levels.highest, header)

    def pack_grid(self, grid: Grid, q: np.ndarray) -> np.ndarray:
        return np.concatenate([self.pack_codes(q), grid.header], axis=1)


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
    """Each scale, or the whole number below or above it if that has less squared error; and the sums there."""

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
