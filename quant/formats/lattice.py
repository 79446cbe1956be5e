"""Formats of grid points with signs: common code of IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S."""

from abc import abstractmethod
from functools import cache
from typing import Any, ClassVar

import gguf
import numpy as np

from quant.formats.bits import HALF_MAX, half_bytes
from quant.formats.lattice_fit import Lattice, LatticeBlocks, fit_lattice, lattice_of
from quant.formats.levels import ScaledLevelsFormat
from quant.formats.linear_fit import Search, even_targets

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


def pack_scales(scales: np.ndarray) -> np.ndarray:
    """The inverse of `nibbles`: [B, 2 n] uint8 in 0..15 -> [B, n]"""
    return scales[:, 0::2] | scales[:, 1::2] << 4


def search_for(effort: str, levels: np.ndarray) -> Search:
    """Targets about the largest level, and the lowest level for weights of one magnitude: each grid has that point."""
    lowest, largest = float(levels[0]), float(levels[-1])
    if effort == "fast":
        return Search((*even_targets(largest, 0.25 * largest, 5), lowest), num_refits=1, num_rounds=1)
    return Search((*even_targets(largest, 0.35 * largest, 15), lowest), num_refits=2, num_rounds=2)


@cache
def lattice_of_format(name: str, even_signs: bool, unit: float, num_runs: int) -> Lattice:
    return lattice_of(grid_points(name.upper()), even=even_signs, unit=unit, num_runs=num_runs)


class LatticeFormat(ScaledLevelsFormat):
    """weight = d * unit * (2 * s + 1) * point * sign, s in 0..15

    A point of the grid gives the magnitudes of 4 or 8 weights in a row, and a byte the signs of 8. Types with 7 bits
    per sign byte have an even number of negative weights in each 8.

    even_signs   the signs of 8 weights take 7 bits
    num_runs     runs of a super-block with a scale of their own
    """

    block_size = 256
    fallback = "iq4_nl"
    even_signs: ClassVar[bool]
    unit: ClassVar[float]
    num_runs: ClassVar[int]
    largest_level: ClassVar[int]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.largest_weight = np.float32(31 * cls.unit * cls.largest_level) * HALF_MAX

    @abstractmethod
    def read_points(self, data: np.ndarray) -> np.ndarray:
        """data [B, block_bytes] uint8 -> index of each point, [B, 256 / weights per point] integers"""

    @abstractmethod
    def read_signs(self, data: np.ndarray) -> np.ndarray:
        """data [B, block_bytes] uint8 -> [B, 32] uint8"""

    @abstractmethod
    def pack(self, fit: LatticeBlocks) -> np.ndarray:
        """-> uint8 [B, block_bytes - 2]: everything after d"""

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        lattice = lattice_of_format(self.name, self.even_signs, self.unit, self.num_runs)
        fit = fit_lattice(blocks, importance, lattice, search_for(effort, lattice.levels))
        return np.concatenate([half_bytes(fit.d), self.pack(fit)], axis=1)

    def read_levels(self, data: np.ndarray) -> np.ndarray:
        magnitude = grid_points(self.name.upper())[self.read_points(data)].reshape(len(data), 32, 8)
        level = magnitude * split_signs(self.read_signs(data))
        return level.reshape(len(data), self.num_runs, -1)
