"""Q3_K and Q6_K: super-blocks of 256 weights with two levels of scales and no minima; IQ4_XS uses the same search."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from quant.formats.bits import HALF_MAX, half_bytes, half_from_bytes, inverse, to_half
from quant.formats.grid import Grid, GridFormat
from quant.formats.levels import Levels, WholeLevels
from quant.formats.linear_fit import (
    Runs,
    Search,
    even_targets,
    fit_scale,
    runs_of,
    saturate,
    signed_extreme,
    sum_in_order,
)


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


Q3_K_SEARCHES = {
    "fast": Search(even_targets(-4, 1.5, 7), num_rounds=1),
    "best": Search(even_targets(-4, 2, 33), num_refits=1, num_rounds=2),
}


class Q3_K(KLinearFormat):
    """weight = d * (scales[i] - 32) * (q - 4), q in 0..7, scales in 0..63, i the sub-block of 16

    byte 0           32                96       108 110
         +-----------+-----------------+--------+---+
         | hmask: 32 |  qs: 2 x 32     | scales | d |
         +-----------+-----------------+--------+---+

    Each half h of 128 weights is four runs of 32, q[h][r][j]:
        qs[h][j]  = q[0][j] & 3 | (q[1][j] & 3) << 2 | (q[2][j] & 3) << 4 | (q[3][j] & 3) << 6
        hmask[j]  bit 4h + r = q[h][r][j] >> 2
    scales s[0..15], 12 bytes:
        byte i in 0..7    s[i] & 15 | (s[i + 8] & 15) << 4
        byte 8 + i, i < 4 s[i] >> 4 | s[i + 4] >> 4 << 2 | s[i + 8] >> 4 << 4 | s[i + 12] >> 4 << 6
    """

    name = "q3_k"
    gguf_type = 11
    gguf_file_type = 12  # MOSTLY_Q3_K_M
    fallback = "q4_0"
    block_bytes = 110
    code_bytes = 96
    levels = WholeLevels(-4, 3)
    scale_range = 32
    searches = Q3_K_SEARCHES

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        runs = np.arange(4, dtype=np.uint8)[:, None]
        low = data[:, 32:96].reshape(-1, 2, 1, 32) >> 2 * runs & 3  # [B, 2, 4, 32]
        bit = np.arange(8, dtype=np.uint8).reshape(2, 4, 1)
        high = data[:, :32].reshape(-1, 1, 1, 32) >> bit & 1
        return ((low | high << 2).view(np.int8) - np.int8(4)).reshape(-1, 256)

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        q = (q + 4).astype(np.uint8).reshape(-1, 2, 4, 32)
        hmask = np.packbits((q >> 2).reshape(-1, 8, 32), axis=1, bitorder="little").reshape(-1, 32)
        qs = ((q & 3) << np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]).sum(axis=2, dtype=np.uint8)  # [B, 2, 32]
        return np.concatenate([hmask, qs.reshape(-1, 64)], axis=1)

    def pack_scales(self, scales: np.ndarray) -> np.ndarray:
        s = (scales + 32).astype(np.uint8)
        low, high = s & 15, (s >> 4).reshape(-1, 4, 4)
        high = (high << np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]).sum(axis=1, dtype=np.uint8)
        return np.concatenate([low[:, :8] | low[:, 8:] << 4, high], axis=1)

    def unpack_scales(self, data: np.ndarray) -> np.ndarray:
        low = np.concatenate([data[:, :8] & 15, data[:, :8] >> 4], axis=1)
        high = data[:, None, 8:] >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None] & 3  # [B, 4, 4]
        return (low | high.reshape(-1, 16) << 4).view(np.int8) - np.int8(32)


assert Q3_K.block_bytes == 256 // 8 + 256 * 2 // 8 + 16 * 6 // 8 + 2


Q6_K_SEARCHES = {
    "fast": Search(even_targets(-32, 4, 17)),
    "best": Search(even_targets(-29, 7, 57), num_refits=1, num_rounds=2),
}


class Q6_K(KLinearFormat):
    """weight = d * scales[i] * (q - 32), q in 0..63, scales int8, i the sub-block of 16

    byte 0                128              192      208 210
         +----------------+----------------+--------+---+
         | ql: 2 x 64     | qh: 2 x 32     | scales | d |
         +----------------+----------------+--------+---+

    Each half h of 128 weights is four runs of 32, q[h][r][j]:
        ql[h][j]      = q[0][j] & 15 | (q[2][j] & 15) << 4
        ql[h][32 + j] = q[1][j] & 15 | (q[3][j] & 15) << 4
        qh[h][j]      = q[0][j] >> 4 | q[1][j] >> 4 << 2 | q[2][j] >> 4 << 4 | q[3][j] >> 4 << 6
    """

    name = "q6_k"
    gguf_type = 14
    gguf_file_type = 18  # MOSTLY_Q6_K
    fallback = "q8_0"
    block_bytes = 210
    code_bytes = 192
    levels = WholeLevels(-32, 31)
    scale_range = 128
    searches = Q6_K_SEARCHES

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        ql, qh = data[:, :128].reshape(-1, 2, 2, 32), data[:, 128:192].reshape(-1, 2, 1, 32)
        low = np.concatenate([ql & 15, ql >> 4], axis=2)  # [B, 2, 4, 32]
        high = qh >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None] & 3
        return ((low | high << 4).view(np.int8) - np.int8(32)).reshape(-1, 256)

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        q = (q + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
        ql = q[:, :, :2] & 15 | q[:, :, 2:] << 4  # [B, 2, 2, 32]
        qh = (q >> 4 << np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]).sum(axis=2, dtype=np.uint8)  # [B, 2, 32]
        return np.concatenate([ql.reshape(-1, 128), qh.reshape(-1, 64)], axis=1)

    def pack_scales(self, scales: np.ndarray) -> np.ndarray:
        return scales.astype(np.int8).view(np.uint8)

    def unpack_scales(self, data: np.ndarray) -> np.ndarray:
        return data.view(np.int8)


assert Q6_K.block_bytes == 256 * 4 // 8 + 256 * 2 // 8 + 16 + 2
