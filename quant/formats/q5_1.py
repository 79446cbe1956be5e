"""Q5_1: 32 weights of 5 bits with a float16 scale and minimum."""

import numpy as np

from quant.formats.bits import pack_bits, pack_nibbles, unpack_bits, unpack_nibbles
from quant.formats.grid import Grid, GridFormat
from quant.formats.half import HALF_MAX, half_bytes
from quant.formats.half_affine import grid_of_d_and_m, quantize_half_affine


class Q5_1(GridFormat):
    """weight = d * q + m, q in 0..31

    byte 0   2   4        8                  24
         +---+---+--------+------------------+   qh bit j = q[j] >> 4
         | d | m | qh: 32 |  qs: 32 x 4 bit  |   qs[j] = q[j] & 15 | (q[j + 16] & 15) << 4
         +---+---+--------+------------------+
    """

    name = "q5_1"
    gguf_type = 7
    gguf_file_type = 9  # MOSTLY_Q5_1
    block_size = 32
    block_bytes = 24
    largest_weight = HALF_MAX

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        d, m, q = quantize_half_affine(blocks, importance, effort, qmax=31)
        return np.concatenate([half_bytes(d), half_bytes(m), pack_bits(q >> 4), pack_nibbles(q & 15)], axis=1)

    def read_grid(self, data: np.ndarray) -> Grid:
        return grid_of_d_and_m(data, qmax=31)

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        return (unpack_nibbles(data[:, 8:]) | unpack_bits(data[:, 4:8]) << 4).view(np.int8)

    def pack_grid(self, grid: Grid, q: np.ndarray) -> np.ndarray:
        q = q.astype(np.uint8)
        return np.concatenate([grid.header, pack_bits(q >> 4), pack_nibbles(q & 15)], axis=1)


assert Q5_1.block_bytes == 2 + 2 + 32 // 8 + 32 * 4 // 8
