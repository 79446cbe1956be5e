"""IQ3_XXS and IQ3_S: 256 weights as 64 points of 4; 3.06 and 3.44 bits per weight."""

import numpy as np

from quant.formats.bits import half_from_bytes
from quant.formats.iq2 import pack_scaled_signs, scaled_signs
from quant.formats.lattice import LatticeFormat, nibbles, pack_scales
from quant.formats.lattice_fit import LatticeBlocks


class IQ3_XXS(LatticeFormat):
    """weight = d * (s + 0.5) / 2 * grid[p] * sign

    byte 0   2                 66                                  98
         +---+-----------------+-----------------------------------+
         | d |  64 x p, 8 bit  |  8 x (4 x sign of 7 bit, s of 4 bit)  |
         +---+-----------------+-----------------------------------+
    """

    name, gguf_type, gguf_file_type = "iq3_xxs", 18, 23  # MOSTLY_IQ3_XXS
    block_bytes = 98
    num_levels = 16
    even_signs, unit, num_runs, largest_level = True, 0.25, 8, 62

    def _words(self, data: np.ndarray) -> np.ndarray:
        """[B, 8] uint32"""
        return np.ascontiguousarray(data[:, 66:]).view("<u4")

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        scale, _ = scaled_signs(self._words(data))
        return half_from_bytes(data[:, :2])[:, None] * (np.float32(0.5) + scale) * np.float32(0.5)

    def read_points(self, data: np.ndarray) -> np.ndarray:
        return data[:, 2:66]

    def read_signs(self, data: np.ndarray) -> np.ndarray:
        return scaled_signs(self._words(data))[1]

    def pack(self, fit: LatticeBlocks) -> np.ndarray:
        return np.concatenate([fit.points.astype(np.uint8), pack_scaled_signs(fit).view(np.uint8)], axis=1)


assert IQ3_XXS.block_bytes == 2 + 64 + 8 * (4 * 7 + 4) // 8


class IQ3_S(LatticeFormat):
    """weight = d * (2 * s + 1) * grid[p] * sign

    byte 0   2               66               74              106           110
         +---+---------------+----------------+---------------+-------------+
         | d |  64 x p, low  |  64 x p, high  |  32 x sign    |  8 x s      |
         |   |       8 bit   |         1 bit  |       8 bit   |      4 bit  |
         +---+---------------+----------------+---------------+-------------+
    """

    name, gguf_type, gguf_file_type = "iq3_s", 21, 26  # MOSTLY_IQ3_S
    block_bytes = 110
    num_levels = 16
    even_signs, unit, num_runs, largest_level = False, 1.0, 8, 15

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        return half_from_bytes(data[:, :2])[:, None] * (1 + 2 * nibbles(data[:, 106:]))

    def read_points(self, data: np.ndarray) -> np.ndarray:
        high = np.unpackbits(data[:, 66:74], axis=1, bitorder="little")
        return data[:, 2:66] | high.astype(np.uint16) << 8

    def read_signs(self, data: np.ndarray) -> np.ndarray:
        return data[:, 74:106]

    def pack(self, fit: LatticeBlocks) -> np.ndarray:
        high = np.packbits((fit.points >> 8).astype(bool), axis=1, bitorder="little")
        return np.concatenate([fit.points.astype(np.uint8), high, fit.signs, pack_scales(fit.scales)], axis=1)


assert IQ3_S.block_bytes == 2 + 64 + 64 // 8 + 32 + 8 * 4 // 8
