"""Q5_0: 32 weights of 5 bits with one float16 scale."""

import numpy as np

from quant.formats.bits import pack_five_bits, unpack_five_bits
from quant.formats.levels import WholeLevels
from quant.formats.linear_fit import Search, even_targets
from quant.formats.one_scale import OneScaleFormat

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
    block_bytes = 22
    levels = WholeLevels(-16, 15)
    searches = SEARCHES

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        return unpack_five_bits(data[:, 2:]).view(np.int8) - np.int8(16)

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        return pack_five_bits((q + 16).astype(np.uint8))


assert Q5_0.block_bytes == 2 + 32 // 8 + 32 * 4 // 8
