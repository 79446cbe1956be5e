"""Q5_K: super-blocks of 256 weights of 5 bits, 6-bit scale and minimum per 32."""

import numpy as np

from quant.formats.bits import pack_nibbles, unpack_nibbles
from quant.formats.k_scales import KScalesFormat


class Q5_K(KScalesFormat):
    """weight = d * scales[i] * q - dmin * minima[i], q in 0..31, i the sub-block of 32

    byte 0   2      4         16       48                       176
         +---+------+---------+--------+------------------------+   qh[j] bit i = q[i][j] >> 4
         | d | dmin | scales  | qh: 32 |  qs: 4 x 32 bytes      |   qs[c][j] = q[2c][j] & 15 | q[2c + 1][j] << 4
         +---+------+---------+--------+------------------------+
    """

    name = "q5_k"
    gguf_type = 13
    gguf_file_type = 17  # MOSTLY_Q5_K_M
    fallback = "q5_1"
    block_bytes = 176
    qmax = 31

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        low = unpack_nibbles(data[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
        high = np.unpackbits(data[:, None, 16:48], axis=1, bitorder="little")  # [B, 8, 32]
        return (low | high << 4).reshape(-1, 256).view(np.int8)

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        q = q.astype(np.uint8)
        qh = np.packbits(q.reshape(-1, 8, 32) >> 4, axis=1, bitorder="little")[:, 0]  # [B, 32]
        qs = pack_nibbles((q & 15).reshape(-1, 4, 64)).reshape(-1, 128)
        return np.concatenate([qh, qs], axis=1)


assert Q5_K.block_bytes == 2 + 2 + 12 + 256 // 8 + 256 * 4 // 8
