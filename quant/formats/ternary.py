"""TQ1_0 and TQ2_0: blocks of 256 weights of -1, 0 or 1 under one float16 scale."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from quant.formats.bits import HALF_MAX, half_bytes, half_from_bytes, to_half
from quant.formats.levels import ScaledLevelsFormat


class TernaryFormat(ScaledLevelsFormat):
    """weight = d * (q - 1), q in 0..2

    Scale and codes have the least squared error that there is: libggml's take the largest magnitude as the scale, and
    then most ordinary weights become 0. Weights that are ternary already come back as they were.
    """

    block_size: ClassVar[int] = 256  # pyright: ignore[reportIncompatibleVariableOverride]
    num_levels = 3
    fallback = "q4_0"
    largest_weight = HALF_MAX

    @abstractmethod
    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        """q [B, 256] uint8 in 0..2 -> uint8 [B, block_bytes - 2]"""

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        d = ternary_scale(blocks, np.ones_like(blocks) if importance is None else importance)
        q = 1 + np.sign(blocks) * (np.abs(blocks) > d.astype(np.float32)[:, None] / 2)
        return np.concatenate([self.pack_codes(q.astype(np.uint8)), half_bytes(d)], axis=1)

    def at_end(self, level: np.ndarray) -> np.ndarray:
        return np.abs(level) >= 1


def ternary_scale(blocks: np.ndarray, importance: np.ndarray) -> np.ndarray:
    """blocks, importance [B, n] float32 -> d [B] float16 of the least sum of importance * (weight - d * q)^2.

    Whatever d is, the largest magnitudes take codes other than 0. For the n largest, the error falls by
    (sum of w |x|)^2 / sum of w, and d is the quotient of these sums: the best n is the best of all.
    """
    size = np.minimum(np.abs(blocks), HALF_MAX).astype(np.float64)
    order = np.argsort(-size, axis=1, kind="stable")
    size, weight = np.take_along_axis(size, order, 1), np.take_along_axis(importance.astype(np.float64), order, 1)
    sums, weights = np.cumsum(weight * size, axis=1), np.cumsum(weight, axis=1)
    best = np.argmax(sums**2 / weights, axis=1)[:, None]
    return to_half((np.take_along_axis(sums, best, 1) / np.take_along_axis(weights, best, 1))[:, 0].astype(np.float32))


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
