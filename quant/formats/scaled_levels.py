"""Formats of levels under one scale per run: common code of codebooks, lattices and signs."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from quant.formats.base import BlockFormat
from quant.formats.codes import Codes, codes_of_blocks
from quant.qtensor import QTensor


class ScaledLevelsFormat(BlockFormat):
    """weight = scale * level; the levels are not evenly spaced, so error feedback cannot use them

    num_levels   number of values that a level may have
    """

    num_levels: ClassVar[int]

    @abstractmethod
    def read_scale(self, data: np.ndarray) -> np.ndarray:
        """data [B, block_bytes] uint8 -> scale of each run [B, R] float32"""

    @abstractmethod
    def read_levels(self, data: np.ndarray) -> np.ndarray:
        """data [B, block_bytes] uint8 -> [B, R, block_size / R] float32"""

    def at_end(self, level: np.ndarray) -> np.ndarray:
        """Whether a larger weight would have the same level. A vector of levels is chosen whole and has no ends."""
        return np.zeros(level.shape, dtype=bool)

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        weight = self.read_scale(data)[:, :, None] * self.read_levels(data)
        return weight.reshape(-1, self.block_size)

    def weight_codes(self, qtensor: QTensor) -> Codes:
        data = np.ascontiguousarray(self._blocks_of(qtensor))
        level = self.read_levels(data)
        scale = np.broadcast_to(self.read_scale(data)[:, :, None], level.shape)
        return codes_of_blocks(qtensor.shape, level, self.at_end(level), scale, self.num_levels)
