"""IQ1_S and IQ1_M: 256 weights as 32 points of 8 among -1, 0 and 1, shifted by 1/8; 1.56 and 1.75 bits per weight."""

import numpy as np

from quant.formats.base import ReadOnlyFormat
from quant.formats.bits import half_from_bytes
from quant.formats.lattice import NIBBLES, grid_points
from quant.formats.levels import ScaledLevelsFormat

DELTA = np.float32(0.125)
POINT_FIELDS = np.array([0, 3, 6, 9], dtype=np.uint16)  # the high bits of the four points of a word


def shifted_points(points: np.ndarray, down: np.ndarray) -> np.ndarray:
    """points [...] -> [..., 8] float32: -1, 0 and 1, plus 1/8, or minus 1/8 where `down` is true"""
    return grid_points("IQ1_S")[points] + np.where(down, -DELTA, DELTA)[..., None]


class IQ1_S(ReadOnlyFormat, ScaledLevelsFormat):
    """weight = d * (2 * s + 1) * (grid[p] +- 1/8)

    byte 0   2               34                                                       50
         +---+---------------+--------------------------------------------------------+
         | d |  32 x p, low  |  8 x (4 x p, high 3 bit; s of 3 bit; 1 bit: minus 1/8) |
         |   |       8 bit   |                                                        |
         +---+---------------+--------------------------------------------------------+
    """

    name, gguf_type, gguf_file_type = "iq1_s", 19, 24  # MOSTLY_IQ1_S
    block_size, block_bytes = 256, 50
    num_levels = 6

    def _words(self, data: np.ndarray) -> np.ndarray:
        """[B, 8] uint16"""
        return np.ascontiguousarray(data[:, 34:]).view("<u2")

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        scale = (self._words(data) >> 12 & 7).astype(np.float32)
        return half_from_bytes(data[:, :2])[:, None] * (2 * scale + 1)

    def read_levels(self, data: np.ndarray) -> np.ndarray:
        words = self._words(data)
        high = words[:, :, None] >> POINT_FIELDS & 7  # [B, 8, 4]
        points = data[:, 2:34].reshape(-1, 8, 4) | high << 8
        down = np.broadcast_to((words >> 15 == 1)[:, :, None], points.shape)
        return shifted_points(points, down).reshape(len(data), 8, 32)


assert IQ1_S.block_bytes == 2 + 32 + 8 * (4 * 3 + 3 + 1) // 8


SCALE_FIELDS = np.array([0, 3, 6, 9], dtype=np.uint16)  # the four scales of a word; the top 4 bits are a part of d
SCALE_PLACES = np.array([0, 4, 8, 12], dtype=np.uint16)  # of those parts in d


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
        d = np.bitwise_or.reduce(words >> 12 << SCALE_PLACES, axis=1, keepdims=True).astype("<u2")
        scale = (words[:, :, None] >> SCALE_FIELDS & 7).reshape(len(data), 16).astype(np.float32)
        return d.view("<f2").astype(np.float32) * (2 * scale + 1)

    def read_levels(self, data: np.ndarray) -> np.ndarray:
        high = (data[:, 32:48, None] >> NIBBLES & 15).reshape(len(data), 32)
        points = data[:, :32] | (high & 7).astype(np.uint16) << 8
        return shifted_points(points, high > 7).reshape(len(data), 16, 16)


assert IQ1_M.block_bytes == 32 + 32 * (3 + 1) // 8 + 4 * (4 * 3 + 4) // 8
