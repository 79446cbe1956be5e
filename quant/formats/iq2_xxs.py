"""IQ2_XXS: 256 weights as 32 points of 8, a scale of 4 bits per 32 weights, 2.06 bits per weight."""

import numpy as np

from quant.formats.half import half_from_bytes
from quant.formats.lattice import SEVEN_SIGNS, LatticeFormat
from quant.formats.lattice_fit import LatticeBlocks

FIELDS = np.array([0, 7, 14, 21], dtype=np.uint32)  # bits of the four signs of a word; the scale is above


def scaled_signs(word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """word [B, 8] uint32 -> (scale [B, 8] float32 in 0..15, signs [B, 32] uint8)"""
    signs = SEVEN_SIGNS[word[:, :, None] >> FIELDS & 127]
    return (word >> 28).astype(np.float32), signs.reshape(len(word), 32)


def pack_scaled_signs(fit: LatticeBlocks) -> np.ndarray:
    """The inverse of `scaled_signs`, [B, 8] uint32. The sign of every eighth weight is the parity of the others."""
    seven = (fit.signs & 127).reshape(len(fit.signs), 8, 4).astype("<u4")
    return np.bitwise_or.reduce(seven << FIELDS, axis=2) | fit.scales.astype("<u4") << 28


class IQ2_XXS(LatticeFormat):
    """weight = d * (s + 0.5) / 4 * grid[p] * sign

    byte 0   2                                             66
         +---+---------------------------------------------+
         | d |  8 x (4 x p of 8 bit | 4 x sign of 7 bit, s of 4 bit) |
         +---+---------------------------------------------+
    """

    name, gguf_type, gguf_file_type = "iq2_xxs", 16, 19  # MOSTLY_IQ2_XXS
    block_bytes = 66
    num_levels = 6
    even_signs, unit, num_runs, largest_level = True, 0.125, 8, 43

    def _words(self, data: np.ndarray) -> np.ndarray:
        """[B, 8, 2] uint32"""
        return np.ascontiguousarray(data[:, 2:]).view("<u4").reshape(-1, 8, 2)

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        scale, _ = scaled_signs(self._words(data)[:, :, 1])
        return half_from_bytes(data[:, :2])[:, None] * (np.float32(0.5) + scale) * np.float32(0.25)

    def read_points(self, data: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(self._words(data)[:, :, 0]).view(np.uint8).reshape(len(data), 32)

    def read_signs(self, data: np.ndarray) -> np.ndarray:
        return scaled_signs(self._words(data)[:, :, 1])[1]

    def pack(self, fit: LatticeBlocks) -> np.ndarray:
        points = fit.points.astype(np.uint8).view("<u4")  # [B, 8]
        return np.stack([points, pack_scaled_signs(fit)], axis=2).reshape(len(points), 16).view(np.uint8)


assert IQ2_XXS.block_bytes == 2 + 8 * (4 * 8 + 4 * 7 + 4) // 8
