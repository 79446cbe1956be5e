"""Levels, the values of codes before their scale: whole numbers, codebooks, and the formats of levels under a scale."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from quant.formats.base import BlockFormat
from quant.formats.bits import unpack_nibbles
from quant.formats.codes import Codes, codes_of_blocks
from quant.qtensor import QTensor


class Levels(Protocol):
    """The values v of weight = scale * v."""

    @property
    def reach(self) -> int:
        """The largest magnitude of a level."""
        ...

    def nearest(self, y: np.ndarray) -> np.ndarray:
        """y float32, any shape -> the nearest level of each, float32; a tie goes as this says, always the same way"""
        ...


@dataclass(frozen=True, slots=True)
class WholeLevels:
    """lowest..highest in steps of 1; ties to even."""

    lowest: int
    highest: int

    @property
    def reach(self) -> int:
        return max(-self.lowest, self.highest)

    def nearest(self, y: np.ndarray) -> np.ndarray:
        return np.rint(np.clip(y, np.float32(self.lowest), np.float32(self.highest)))


@dataclass(frozen=True, slots=True)
class CodebookLevels:
    """Ascending values, not evenly spaced; ties to the lower one."""

    values: tuple[int, ...]

    @property
    def reach(self) -> int:
        return max(-self.values[0], self.values[-1])

    def nearest(self, y: np.ndarray) -> np.ndarray:
        return self.decode(self.codes(y))

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """index, uint8 -> value, float32"""
        return np.array(self.values, dtype=np.float32)[codes]

    def codes(self, y: np.ndarray) -> np.ndarray:
        """y float32 -> index of the nearest value, uint8"""
        values = np.array(self.values, dtype=np.float32)
        middles = (values[1:] + values[:-1]) / 2
        return np.searchsorted(middles, y, side="left").astype(np.uint8)


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


class CodebookFormat(ScaledLevelsFormat):
    """weight = scale * codebook[q], q in 0..15

    A block begins with its scales and ends with 16 bytes for each 32 weights, byte j = q[j] | q[j + 16] << 4.
    """

    codebook: ClassVar[CodebookLevels]
    num_levels = 16

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        """data [B, block_bytes] uint8 -> q [B, block_size // 32, 32] uint8"""
        return unpack_nibbles(data[:, -self.block_size // 2 :].reshape(len(data), -1, 16))

    def read_levels(self, data: np.ndarray) -> np.ndarray:
        return self.codebook.decode(self.read_codes(data))

    def at_end(self, level: np.ndarray) -> np.ndarray:
        return (level == min(self.codebook.values)) | (level == max(self.codebook.values))
