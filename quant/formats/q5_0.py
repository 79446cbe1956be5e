"""Q5_0: 32 weights of 5 bits with one float16 scale."""

import numpy as np

from quant.formats.bits import pack_bits, pack_nibbles, unpack_bits, unpack_nibbles
from quant.formats.grid import Grid
from quant.formats.half import half_bytes
from quant.formats.levels import WholeLevels
from quant.formats.linear_fit import Search, even_targets
from quant.formats.one_scale import OneScaleFormat
from quant.formats.signed_max import codes_of_signed_max

SEARCHES = {
    "fast": Search(even_targets(-16, 2, 9)),
    "best": Search(even_targets(-16, 3, 25), num_refits=1),
}


class Q5_0(OneScaleFormat):
    """weight = d * (q - 16), q in 0..31

    byte 0   2        6                  22
         +---+--------+------------------+   qh bit j = q[j] >> 4
         | d | qh: 32 |  qs: 32 x 4 bit  |   qs[j] = q[j] & 15 | (q[j + 16] & 15) << 4
         +---+--------+------------------+
    """

    name = "q5_0"
    gguf_type = 6
    gguf_file_type = 8  # MOSTLY_Q5_0
    block_size = 32
    block_bytes = 22
    levels = WholeLevels(-16, 15)
    searches = SEARCHES

    def round_blocks(self, blocks: np.ndarray) -> np.ndarray:
        d, q = codes_of_signed_max(blocks, half_range=16)
        return np.concatenate([half_bytes(d), _pack(q)], axis=1)

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        q = unpack_nibbles(data[:, 6:]) | unpack_bits(data[:, 2:6]) << 4  # [B, 32]
        return q.view(np.int8) - np.int8(16)

    def pack_grid(self, grid: Grid, q: np.ndarray) -> np.ndarray:
        return np.concatenate([grid.header, _pack((q + 16).astype(np.uint8))], axis=1)


def _pack(q: np.ndarray) -> np.ndarray:
    """q [B, 32] uint8 below 32 -> qh and qs [B, 20]"""
    return np.concatenate([pack_bits(q >> 4), pack_nibbles(q & 15)], axis=1)


assert Q5_0.block_bytes == 2 + 32 // 8 + 32 * 4 // 8
