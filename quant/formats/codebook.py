"""Formats of 4-bit codes that index a codebook: IQ4_NL, IQ4_XS, MXFP4 and NVFP4."""

from typing import ClassVar

import numpy as np

from quant.formats.bits import unpack_nibbles
from quant.formats.levels import CodebookLevels
from quant.formats.scaled_levels import ScaledLevelsFormat


class CodebookFormat(ScaledLevelsFormat):
    """weight = scale * codebook[q], q in 0..15

    A block begins with its scales and ends with 16 bytes for each 32 weights, byte j = q[j] | q[j + 16] << 4.
    """

    codebook: ClassVar[CodebookLevels]
    num_levels = 16

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        """data [B, block_bytes] uint8 -> q [B, block_size // 32, 32] uint8"""
        return unpack_nibbles(data[:, -self.block_size // 2 :].reshape(len(data), -1, 16))

    def read_levels(self, data: np.ndarray) -> np.ndarray:
        return self.codebook.decode(self.read_codes(data))

    def at_end(self, level: np.ndarray) -> np.ndarray:
        return (level == min(self.codebook.values)) | (level == max(self.codebook.values))
