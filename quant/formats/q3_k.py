"""Q3_K: super-blocks of 256 weights of 3 bits, 6-bit scale per 16."""

import numpy as np

from quant.formats.grid import Grid, GridFormat
from quant.formats.half import HALF_MAX, half_bytes, half_from_bytes
from quant.formats.k_linear import fit_k_linear
from quant.formats.levels import WholeLevels
from quant.formats.linear_fit import Search, even_targets

LEVELS = WholeLevels(-4, 3)
SEARCHES = {
    "fast": Search(even_targets(-4, 1.5, 7), num_rounds=1),
    "best": Search(even_targets(-4, 2, 33), num_refits=1, num_rounds=2),
}


class Q3_K(GridFormat):
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
    block_size = 256
    block_bytes = 110
    largest_weight = 32 * LEVELS.reach * HALF_MAX

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        k = fit_k_linear(blocks, importance, 16, LEVELS, 32, SEARCHES[effort])
        return _pack(np.concatenate([_pack_scales(k.scales), half_bytes(k.d)], axis=1), LEVELS.nearest(k.y))

    def read_grid(self, data: np.ndarray) -> Grid:
        header = data[:, 96:]
        scale = half_from_bytes(header[:, 12:])[:, None] * _unpack_scales(header[:, :12])  # [B, 16]
        scale = np.repeat(scale, 16, axis=1)
        return Grid(scale, np.zeros_like(scale), LEVELS.lowest, LEVELS.highest, header)

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        runs = np.arange(4, dtype=np.uint8)[:, None]
        low = data[:, 32:96].reshape(-1, 2, 1, 32) >> 2 * runs & 3  # [B, 2, 4, 32]
        bit = np.arange(8, dtype=np.uint8).reshape(2, 4, 1)
        high = data[:, :32].reshape(-1, 1, 1, 32) >> bit & 1
        return ((low | high << 2).view(np.int8) - np.int8(4)).reshape(-1, 256)

    def pack_grid(self, grid: Grid, q: np.ndarray) -> np.ndarray:
        return _pack(grid.header, q)


def _pack(header: np.ndarray, q: np.ndarray) -> np.ndarray:
    """header [B, 14] uint8, q [B, ...] 256 whole numbers in -4..3 -> [B, 110] uint8"""
    q = (q + 4).astype(np.uint8).reshape(-1, 2, 4, 32)
    hmask = np.packbits((q >> 2).reshape(-1, 8, 32), axis=1, bitorder="little").reshape(-1, 32)
    qs = ((q & 3) << np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]).sum(axis=2, dtype=np.uint8)  # [B, 2, 32]
    return np.concatenate([hmask, qs.reshape(-1, 64), header], axis=1)


def _pack_scales(scales: np.ndarray) -> np.ndarray:
    """scales [B, 16] whole numbers in -32..31 -> [B, 12] uint8"""
    s = (scales + 32).astype(np.uint8)
    low, high = s & 15, (s >> 4).reshape(-1, 4, 4)
    high = (high << np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]).sum(axis=1, dtype=np.uint8)
    return np.concatenate([low[:, :8] | low[:, 8:] << 4, high], axis=1)


def _unpack_scales(data: np.ndarray) -> np.ndarray:
    """[B, 12] uint8 -> scales [B, 16] int8 in -32..31"""
    low = np.concatenate([data[:, :8] & 15, data[:, :8] >> 4], axis=1)
    high = data[:, None, 8:] >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None] & 3  # [B, 4, 4]
    return (low | high.reshape(-1, 16) << 4).view(np.int8) - np.int8(32)


assert Q3_K.block_bytes == 256 // 8 + 256 * 2 // 8 + 16 * 6 // 8 + 2
