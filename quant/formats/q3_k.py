"""Q3_K: super-blocks of 256 weights of 3 bits, 6-bit scale per 16."""

import numpy as np

from quant.formats.k_linear import KLinearFormat
from quant.formats.levels import WholeLevels
from quant.formats.linear_fit import Search, even_targets

SEARCHES = {
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
    searches = SEARCHES

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
