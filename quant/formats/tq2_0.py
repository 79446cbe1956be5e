"""TQ2_0: 256 weights of -1, 0 or 1 in 2 bits each, with one float16 scale."""

import numpy as np

from quant.formats.half import half_from_bytes
from quant.formats.ternary import TernaryFormat

SHIFTS = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]


class TQ2_0(TernaryFormat):
    """weight = d * (q - 1), q in 0..2; files of other programs may hold 3, which counts as 2 steps above 0

    byte 0                    64  66
         +--------------------+---+
         |  qs: 256 x 2 bit   | d |   qs[j] = q[j] | q[j + 32] << 2 | ... of each 128 weights, 32 bytes
         +--------------------+---+
    """

    name, gguf_type, gguf_file_type = "tq2_0", 35, 37  # MOSTLY_TQ2_0
    block_bytes = 66

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        return half_from_bytes(data[:, 64:])[:, None]

    def read_levels(self, data: np.ndarray) -> np.ndarray:
        codes = data[:, :64].reshape(-1, 2, 1, 32) >> SHIFTS & 3  # [B, 2, 4, 32]
        return codes.reshape(len(data), 1, 256).astype(np.float32) - 1

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        return np.bitwise_or.reduce(q.reshape(-1, 2, 4, 32) << SHIFTS, axis=2).reshape(len(q), 64)


assert TQ2_0.block_bytes == 256 * 2 // 8 + 2
