"""Formats of grid points with signs: common code of IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S."""

from abc import abstractmethod
from functools import cache

import gguf
import numpy as np

from quant.formats.read_only import ReadOnlyFormat
from quant.formats.scaled_levels import ScaledLevelsFormat

SEVEN_SIGNS = np.array([i | i.bit_count() % 2 << 7 for i in range(128)], dtype=np.uint8)
NIBBLES = np.array([0, 4], dtype=np.uint8)


@cache
def grid_points(gguf_name: str) -> np.ndarray:
    """The points of a type's grid, [P, 4 or 8] float32. The tables are those of the gguf package.

    source   llama.cpp, ggml-common.h: iq2xxs_grid, iq2xs_grid, iq2s_grid, iq3xxs_grid, iq3s_grid, iq1s_grid
    """
    traits = getattr(gguf.quants, gguf_name)
    traits.init_grid()
    return traits.grid[0, 0]


def split_signs(signs: np.ndarray) -> np.ndarray:
    """[...] uint8 -> [..., 8] float32: bit i set makes the i-th of 8 weights negative"""
    bits = signs[..., None] >> np.arange(8, dtype=np.uint8) & 1
    return 1 - 2 * bits.astype(np.float32)


def nibbles(data: np.ndarray) -> np.ndarray:
    """[B, n] uint8 -> [B, 2 n] float32, the low one of each byte first"""
    return (data[:, :, None] >> NIBBLES & 15).reshape(len(data), -1).astype(np.float32)


class LatticeFormat(ReadOnlyFormat, ScaledLevelsFormat):
    """weight = scale * point * sign

    A point of the grid gives the magnitudes of 4 or 8 weights in a row, and a byte the signs of 8. Types with 7 bits
    per sign byte have an even number of negative weights in each 8.
    """

    block_size = 256

    @abstractmethod
    def read_points(self, data: np.ndarray) -> np.ndarray:
        """data [B, block_bytes] uint8 -> index of each point, [B, 256 / weights per point] integers"""

    @abstractmethod
    def read_signs(self, data: np.ndarray) -> np.ndarray:
        """data [B, block_bytes] uint8 -> [B, 32] uint8"""

    def read_levels(self, data: np.ndarray) -> np.ndarray:
        magnitude = grid_points(self.name.upper())[self.read_points(data)].reshape(len(data), 32, 8)
        level = magnitude * split_signs(self.read_signs(data))
        return level.reshape(len(data), self.read_scale(data).shape[1], -1)
