"""Q4_K: super-blocks of 256 weights of 4 bits, 6-bit scale and minimum per 32."""

import numpy as np

from quant.formats.bits import pack_nibbles, unpack_nibbles
from quant.formats.k_scales import KScalesFormat


class Q4_K(KScalesFormat):
    """weight = d * scales[i] * q - dmin * minima[i], q in 0..15, i the sub-block of 32

    byte 0   2      4         16                       144
         +---+------+---------+------------------------+
         | d | dmin | scales  |  qs: 4 x 32 bytes      |   qs[c][j] = q[2c][j] | q[2c + 1][j] << 4
         +---+------+---------+------------------------+
    """

    name = "q4_k"
    gguf_type = 12
    gguf_file_type = 15  # MOSTLY_Q4_K_M
    fallback = "q5_0"
    block_bytes = 144
    qmax = 15

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        return unpack_nibbles(data[:, 16:].reshape(-1, 4, 32)).reshape(-1, 256).view(np.int8)

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        return pack_nibbles(q.astype(np.uint8).reshape(-1, 4, 64)).reshape(-1, 128)


assert Q4_K.block_bytes == 2 + 2 + 12 + 256 * 4 // 8
