"""IQ2_S: 256 weights as 32 points of 8 with free signs, a scale of 4 bits per 16 weights, 2.56 bits per weight."""

import numpy as np

from quant.formats.half import half_from_bytes
from quant.formats.lattice import LatticeFormat, nibbles, pack_scales
from quant.formats.lattice_fit import LatticeBlocks

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
