"""Q6_K: super-blocks of 256 weights of 6 bits, 8-bit scale per 16."""

import numpy as np

from quant.formats.k_linear import KLinearFormat
from quant.formats.levels import WholeLevels
from quant.formats.linear_fit import Search, even_targets

SEARCHES = {
    "fast": Search(even_targets(-32, 4, 17)),
    "best": Search(even_targets(-29, 7, 57), num_refits=1, num_rounds=2),
}


class Q6_K(KLinearFormat):
    """weight = d * scales[i] * (q - 32), q in 0..63, scales int8, i the sub-block of 16

    byte 0                128              192      208 210
         +----------------+----------------+--------+---+
         | ql: 2 x 64     | qh: 2 x 32     | scales | d |
         +----------------+----------------+--------+---+

    Each half h of 128 weights is four runs of 32, q[h][r][j]:
        ql[h][j]      = q[0][j] & 15 | (q[2][j] & 15) << 4
        ql[h][32 + j] = q[1][j] & 15 | (q[3][j] & 15) << 4
        qh[h][j]      = q[0][j] >> 4 | q[1][j] >> 4 << 2 | q[2][j] >> 4 << 4 | q[3][j] >> 4 << 6
    """

    name = "q6_k"
    gguf_type = 14
    gguf_file_type = 18  # MOSTLY_Q6_K
    fallback = "q8_0"
    block_bytes = 210
    code_bytes = 192
    levels = WholeLevels(-32, 31)
    scale_range = 128
    searches = SEARCHES

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        ql, qh = data[:, :128].reshape(-1, 2, 2, 32), data[:, 128:192].reshape(-1, 2, 1, 32)
        low = np.concatenate([ql & 15, ql >> 4], axis=2)  # [B, 2, 4, 32]
        high = qh >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None] & 3
        return ((low | high << 4).view(np.int8) - np.int8(32)).reshape(-1, 256)

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        q = (q + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
        ql = q[:, :, :2] & 15 | q[:, :, 2:] << 4  # [B, 2, 2, 32]
        qh = (q >> 4 << np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]).sum(axis=2, dtype=np.uint8)  # [B, 2, 32]
        return np.concatenate([ql.reshape(-1, 128), qh.reshape(-1, 64)], axis=1)

    def pack_scales(self, scales: np.ndarray) -> np.ndarray:
        return scales.astype(np.int8).view(np.uint8)

    def unpack_scales(self, data: np.ndarray) -> np.ndarray:
        return data.view(np.int8)


assert Q6_K.block_bytes == 256 * 4 // 8 + 256 * 2 // 8 + 16 + 2
