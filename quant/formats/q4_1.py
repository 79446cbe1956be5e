"""Q4_1: 32 weights of 4 bits with a float16 scale and minimum."""

import numpy as np

from quant.formats.bits import pack_nibbles, unpack_nibbles
from quant.formats.grid import Grid, GridFormat
from quant.formats.half import HALF_MAX, half_bytes
from quant.formats.half_affine import grid_of_d_and_m, quantize_half_affine


class Q4_1(GridFormat):
    """weight = d * q + m, q in 0..15

    byte 0   2   4                  20
         +---+---+------------------+
         | d | m |  qs: 32 x 4 bit  |   qs[j] = q[j] | q[j + 16] << 4
         +---+---+------------------+
    """

    name = "q4_1"
    gguf_type = 3
    gguf_file_type = 3  # MOSTLY_Q4_1
    block_size = 32
    block_bytes = 20
    largest_weight = HALF_MAX

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        d, m, q = quantize_half_affine(blocks, importance, effort, qmax=15)
        return np.concatenate([half_bytes(d), half_bytes(m), pack_nibbles(q)], axis=1)

    def read_grid(self, data: np.ndarray) -> Grid:
        return grid_of_d_and_m(data, qmax=15)

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        return unpack_nibbles(data[:, 4:]).view(np.int8)

    def pack_grid(self, grid: Grid, q: np.ndarray) -> np.ndarray:
        return np.concatenate([grid.header, pack_nibbles(q.astype(np.uint8))], axis=1)


assert Q4_1.block_bytes == 2 + 2 + 32 * 4 // 8
