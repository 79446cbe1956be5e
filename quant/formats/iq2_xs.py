"""IQ2_XS: 256 weights as 32 points of 8, a scale of 4 bits per 16 weights, 2.31 bits per weight."""

import numpy as np

from quant.formats.half import half_from_bytes
from quant.formats.lattice import SEVEN_SIGNS, LatticeFormat, nibbles, pack_scales
from quant.formats.lattice_fit import LatticeBlocks


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
