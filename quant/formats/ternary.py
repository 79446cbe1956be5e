"""Blocks of -1, 0 and 1 under one float16 scale: common code of TQ1_0 and TQ2_0."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from quant.formats.half import HALF_MAX, half_bytes, to_half
from quant.formats.scaled_levels import ScaledLevelsFormat


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
