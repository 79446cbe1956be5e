"""TQ1_0: 256 weights of -1, 0 or 1, five in each byte, with one float16 scale."""

import numpy as np

from quant.formats.half import half_from_bytes
from quant.formats.ternary import TernaryFormat

POWERS = np.array([1, 3, 9, 27, 81], dtype=np.uint8)[:, None]
VALUES = POWERS[::-1].astype(np.uint16)  # of the five digits of a byte


class TQ1_0(TernaryFormat):
    """weight = d * (q - 1), q in 0..2

    byte 0               32              48             52  54
         +---------------+---------------+--------------+---+
         |  5 x 32 q     |  5 x 16 q     |  4 x 4 q     | d |
         +---------------+---------------+--------------+---+

    A byte is the fraction 0.q0 q1 q2 q3 q4 of base 3 in units of 1/256, rounded up. A product with 3**i in 8 bits drops
    the digits before q_i, and q_i is the third of the byte's range that is left. The bytes of a part hold its first 32
    (16, 4) weights as q0, the next as q1, and so on.
    """

    name, gguf_type, gguf_file_type = "tq1_0", 34, 36  # MOSTLY_TQ1_0
    block_bytes = 54

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        return half_from_bytes(data[:, 52:])[:, None]

    def read_levels(self, data: np.ndarray) -> np.ndarray:
        parts = (data[:, None, :32] * POWERS, data[:, None, 32:48] * POWERS, data[:, None, 48:52] * POWERS[:4])
        digits = np.concatenate([part.reshape(len(data), -1) for part in parts], axis=1)  # [B, 256] uint8
        return ((digits.astype(np.uint16) * 3 >> 8).astype(np.float32) - 1)[:, None]

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        parts = (q[:, :160].reshape(-1, 5, 32), q[:, 160:240].reshape(-1, 5, 16), q[:, 240:].reshape(-1, 4, 4))
        numbers = [(part * VALUES[: part.shape[1]]).sum(axis=1, dtype=np.uint16) for part in parts]
        return ((np.concatenate(numbers, axis=1) * 256 + 242) // 243).astype(np.uint8)


assert TQ1_0.block_bytes == 32 + 16 + 4 + 2 and 5 * (32 + 16) + 4 * 4 == TQ1_0.block_size
