"""The values of codes before their scale: evenly spaced whole numbers, or a codebook."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np


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
