"""Q2_K: super-blocks of 256 weights of 2 bits, 4-bit scale and minimum per 16."""

import numpy as np

from quant.formats.affine_fit import Trials
from quant.formats.grid import Grid, GridFormat
from quant.formats.half import HALF_MAX, half_bytes, half_from_bytes
from quant.formats.k_affine import KAffineSearch, KAffineShape, quantize_k_affine

SHAPE = KAffineShape(qmax=3, sub_size=16, scale_max=15)
# With 4 codes it matters which weights are clipped: without shifts the RMSE on Gaussian weights is 1.9 % higher. "best"
# still finds 0.1 %.
SEARCHES = {
    "fast": KAffineSearch(Trials(-0.6, 0.4, num_extra=7, num_shifts=3, num_refits=2), windows=((1, 1),)),
    "best": KAffineSearch(Trials(-0.6, 0.2, num_extra=14, num_shifts=3, num_refits=3), windows=((2, 2), (2, 2))),
}
RUN_SHIFTS = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]


class Q2_K(GridFormat):
    """weight = d * (scales[i] & 15) * q - dmin * (scales[i] >> 4), q in 0..3, i the sub-block of 16

    byte 0        16                 80  82    84
         +--------+------------------+---+------+
         | scales |  qs: 2 x 32      | d | dmin |
         +--------+------------------+---+------+

    Each half h of 128 weights is four runs of 32, q[h][r][j]:
        qs[h][j] = q[0][j] | q[1][j] << 2 | q[2][j] << 4 | q[3][j] << 6
    """

    name = "q2_k"
    gguf_type = 10
    gguf_file_type = 10  # MOSTLY_Q2_K
    fallback = "q4_0"
    block_size = 256
    block_bytes = 84
    largest_weight = SHAPE.scale_max * HALF_MAX

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        k = quantize_k_affine(blocks, importance, SHAPE, SEARCHES[effort])
        return _join(k.scales | k.minima << 4, k.q, np.concatenate([half_bytes(k.d), half_bytes(k.dmin)], axis=1))

    def read_grid(self, data: np.ndarray) -> Grid:
        scales = data[:, :16]
        scale = half_from_bytes(data[:, 80:82])[:, None] * (scales & 15).astype(np.float32)  # [B, 16]
        minimum = half_from_bytes(data[:, 82:])[:, None] * (scales >> 4).astype(np.float32)
        header = np.concatenate([scales, data[:, 80:]], axis=1)
        return Grid(np.repeat(scale, 16, axis=1), np.repeat(-minimum, 16, axis=1), 0, SHAPE.qmax, header)

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        runs = data[:, 16:80].reshape(-1, 2, 1, 32) >> RUN_SHIFTS & 3  # [B, 2, 4, 32]
        return runs.reshape(-1, 256).view(np.int8)

    def pack_grid(self, grid: Grid, q: np.ndarray) -> np.ndarray:
        return _join(grid.header[:, :16], q.astype(np.uint8), grid.header[:, 16:])


def _join(scales: np.ndarray, q: np.ndarray, d_dmin: np.ndarray) -> np.ndarray:
    """scales [B, 16], q [B, ...] of 256 per block, d_dmin [B, 4], all uint8 -> [B, 84]"""
    qs = (q.reshape(-1, 2, 4, 32) << RUN_SHIFTS).sum(axis=2, dtype=np.uint8)  # [B, 2, 32]
    return np.concatenate([scales, qs.reshape(-1, 64), d_dmin], axis=1)


assert Q2_K.block_bytes == 16 + 256 * 2 // 8 + 2 + 2
