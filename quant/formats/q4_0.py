"""Q4_0: 32 weights of 4 bits with one float16 scale."""

import numpy as np

from quant.formats.bits import pack_nibbles, unpack_nibbles
from quant.formats.levels import WholeLevels
from quant.formats.linear_fit import Search, even_targets
from quant.formats.one_scale import OneScaleFormat

SEARCHES = {
    "fast": Search(even_targets(-8, 2, 9)),
    "best": Search(even_targets(-8, 3, 25), num_refits=1),
}


class Q4_0(OneScaleFormat):
    """weight = d * (q - 8), q in 0..15

    byte 0   2                  18
         +---+------------------+
         | d |  qs: 32 x 4 bit  |   qs[j] = q[j] | q[j + 16] << 4
         +---+------------------+
    """

    name = "q4_0"
    gguf_type = 2
    gguf_file_type = 2  # MOSTLY_Q4_0
    block_bytes = 18
    levels = WholeLevels(-8, 7)
    searches = SEARCHES

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        return unpack_nibbles(data[:, 2:]).view(np.int8) - np.int8(8)

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        return pack_nibbles((q + 8).astype(np.uint8))


assert Q4_0.block_bytes == 2 + 32 * 4 // 8
