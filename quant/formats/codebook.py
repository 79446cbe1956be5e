"""Formats of 4-bit codes that index a codebook: IQ4_NL, IQ4_XS and MXFP4."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from quant.formats.base import BlockFormat
from quant.formats.bits import unpack_nibbles
from quant.formats.codes import Codes, codes_of_blocks
from quant.formats.levels import CodebookLevels
from quant.qtensor import QTensor


class CodebookFormat(BlockFormat):
    """weight = scale * codebook[q], q in 0..15; the levels are not evenly spaced, so error feedback cannot use them

    A block begins with its scales and ends with 16 bytes for each 32 weights, byte j = q[j] | q[j + 16] << 4.
    """

    codebook: ClassVar[CodebookLevels]

    @abstractmethod
    def read_scale(self, data: np.ndarray) -> np.ndarray:
        """data [B, block_bytes] uint8 -> scale of each run of 32 weights [B, block_size // 32] float32"""

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        """data [B, block_bytes] uint8 -> q [B, block_size // 32, 32] uint8"""
        return unpack_nibbles(data[:, -self.block_size // 2 :].reshape(len(data), -1, 16))

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        weight = self.read_scale(data)[:, :, None] * self.codebook.decode(self.read_codes(data))
        return weight.reshape(-1, self.block_size)

    def weight_codes(self, qtensor: QTensor) -> Codes:
        data = np.ascontiguousarray(self._blocks_of(qtensor))
        level = self.codebook.decode(self.read_codes(data))
        scale = np.broadcast_to(self.read_scale(data)[:, :, None], level.shape)
        at_end = (level == min(self.codebook.values)) | (level == max(self.codebook.values))
        return codes_of_blocks(qtensor.shape, level, at_end, scale, len(self.codebook.values))
