"""IQ1_M: 256 weights as 32 points of 8 among -1, 0 and 1, a scale of 3 bits per 16 weights, 1.75 bits per weight."""

import numpy as np

from quant.formats.iq1_s import shifted_points
from quant.formats.lattice import NIBBLES
from quant.formats.read_only import ReadOnlyFormat
from quant.formats.scaled_levels import ScaledLevelsFormat

FIELDS = np.array([0, 3, 6, 9], dtype=np.uint16)  # the four scales of a word; the top 4 bits are a part of d
PLACES = np.array([0, 4, 8, 12], dtype=np.uint16)  # of those parts in d


class IQ1_M(ReadOnlyFormat, ScaledLevelsFormat):
    """weight = d * (2 * s + 1) * (grid[p] +- 1/8)

    byte 0               32                                       48                               56
         +---------------+----------------------------------------+--------------------------------+
         |  32 x p, low  |  32 x (p, high 3 bit; 1 bit: minus 1/8) |  4 x (4 x s of 3 bit, 4 bit of d) |
         |       8 bit   |                                        |                                |
         +---------------+----------------------------------------+--------------------------------+
    """

    name, gguf_type, gguf_file_type = "iq1_m", 29, 31  # MOSTLY_IQ1_M
    block_size, block_bytes = 256, 56
    num_levels = 6

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        words = np.ascontiguousarray(data[:, 48:]).view("<u2")  # [B, 4]
        d = np.bitwise_or.reduce(words >> 12 << PLACES, axis=1, keepdims=True).astype("<u2")
        scale = (words[:, :, None] >> FIELDS & 7).reshape(len(data), 16).astype(np.float32)
        return d.view("<f2").astype(np.float32) * (2 * scale + 1)

    def read_levels(self, data: np.ndarray) -> np.ndarray:
        high = (data[:, 32:48, None] >> NIBBLES & 15).reshape(len(data), 32)
        points = data[:, :32] | (high & 7).astype(np.uint16) << 8
        return shifted_points(points, high > 7).reshape(len(data), 16, 16)


assert IQ1_M.block_bytes == 32 + 32 * (3 + 1) // 8 + 4 * (4 * 3 + 4) // 8
