"""Q1_0 and Q2_0: a sign, or 2 bits, per weight, with one float16 scale."""

import numpy as np

from quant.formats.base import ReadOnlyFormat
from quant.formats.bits import half_from_bytes
from quant.formats.levels import ScaledLevelsFormat

SHIFTS = np.array([0, 2, 4, 6], dtype=np.uint8)


class ScaleFirstFormat(ReadOnlyFormat, ScaledLevelsFormat):
    """A block that begins with its one scale."""

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        return half_from_bytes(data[:, :2])[:, None]


class Q1_0(ScaleFirstFormat):
    """weight = d where the bit is set, else -d

    byte 0   2                  18
         +---+------------------+
         | d |  128 x 1 bit     |   weight i is bit i, little endian
         +---+------------------+
    """

    name, gguf_type, gguf_file_type = "q1_0", 41, 40  # MOSTLY_Q1_0
    block_size, block_bytes = 128, 18
    num_levels = 2

    def read_levels(self, data: np.ndarray) -> np.ndarray:
        bits = np.unpackbits(data[:, 2:], axis=1, bitorder="little")
        return (2 * bits.astype(np.float32) - 1)[:, None]


class Q2_0(ScaleFirstFormat):
    """weight = d * (q - 1), q in 0..3

    byte 0   2                  18
         +---+------------------+
         | d |  64 x 2 bit      |   qs[j] = q[4 j] | q[4 j + 1] << 2 | q[4 j + 2] << 4 | q[4 j + 3] << 6
         +---+------------------+
    """

    name, gguf_type, gguf_file_type = "q2_0", 42, 1024  # GUESSED: the gguf package has no file type of it
    block_size, block_bytes = 64, 18
    num_levels = 4

    def read_levels(self, data: np.ndarray) -> np.ndarray:
        codes = data[:, 2:, None] >> SHIFTS & 3
        return (codes.reshape(len(data), 64).astype(np.float32) - 1)[:, None]


assert Q1_0.block_bytes == 2 + 128 // 8 and Q2_0.block_bytes == 2 + 64 * 2 // 8
