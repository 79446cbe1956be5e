"""IQ2_XXS, IQ2_XS and IQ2_S: 256 weights as 32 points of 8; 2.06, 2.31 and 2.56 bits per weight."""

import numpy as np

from quant.formats.bits import half_from_bytes
from quant.formats.lattice import SEVEN_SIGNS, LatticeFormat, nibbles, pack_scales
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


class IQ2_XS(LatticeFormat):
    """weight = d * (s + 0.5) / 4 * grid[p] * sign

    byte 0   2                                    66            74
         +---+------------------------------------+-------------+
         | d |  32 x (p of 9 bit, sign of 7 bit)  |  16 x s of 4 bit |
         +---+------------------------------------+-------------+
    """

    name, gguf_type, gguf_file_type = "iq2_xs", 17, 20  # MOSTLY_IQ2_XS
    block_bytes = 74
    num_levels = 6
    even_signs, unit, num_runs, largest_level = True, 0.125, 16, 43

    def _words(self, data: np.ndarray) -> np.ndarray:
        """[B, 32] uint16"""
        return np.ascontiguousarray(data[:, 2:66]).view("<u2")

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        scale = nibbles(data[:, 66:])
        return half_from_bytes(data[:, :2])[:, None] * (np.float32(0.5) + scale) * np.float32(0.25)

    def read_points(self, data: np.ndarray) -> np.ndarray:
        return self._words(data) & 511

    def read_signs(self, data: np.ndarray) -> np.ndarray:
        return SEVEN_SIGNS[self._words(data) >> 9]

    def pack(self, fit: LatticeBlocks) -> np.ndarray:
        words = fit.points.astype("<u2") | (fit.signs & 127).astype("<u2") << 9
        return np.concatenate([words.view(np.uint8), pack_scales(fit.scales)], axis=1)


assert IQ2_XS.block_bytes == 2 + 32 * (9 + 7) // 8 + 16 * 4 // 8


PAIRS = np.array([0, 2, 4, 6], dtype=np.uint8)


class IQ2_S(LatticeFormat):
    """weight = d * (s + 0.5) / 4 * grid[p] * sign

    byte 0   2               34              66               74             82
         +---+---------------+---------------+----------------+--------------+
         | d |  32 x p, low  |  32 x sign    |  32 x p, high  |  16 x s      |
         |   |       8 bit   |       8 bit   |         2 bit  |       4 bit  |
         +---+---------------+---------------+----------------+--------------+
    """

    name, gguf_type, gguf_file_type = "iq2_s", 22, 28  # MOSTLY_IQ2_S
    block_bytes = 82
    num_levels = 6
    even_signs, unit, num_runs, largest_level = False, 0.125, 16, 43

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        scale = nibbles(data[:, 74:])
        return half_from_bytes(data[:, :2])[:, None] * (np.float32(0.5) + scale) * np.float32(0.25)

    def read_points(self, data: np.ndarray) -> np.ndarray:
        high = (data[:, 66:74, None] >> PAIRS & 3).reshape(len(data), 32)
        return data[:, 2:34] | high.astype(np.uint16) << 8

    def read_signs(self, data: np.ndarray) -> np.ndarray:
        return data[:, 34:66]

    def pack(self, fit: LatticeBlocks) -> np.ndarray:
        low, high = fit.points.astype(np.uint8), (fit.points >> 8).astype(np.uint8).reshape(-1, 8, 4)
        high = np.bitwise_or.reduce(high << PAIRS, axis=2)
        return np.concatenate([low, fit.signs, high, pack_scales(fit.scales)], axis=1)


assert IQ2_S.block_bytes == 2 + 32 + 32 + 32 * 2 // 8 + 16 * 4 // 8
