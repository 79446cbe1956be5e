"""Blocks of 32 whole-number codes under one float16 scale and nothing else: common code of Q4_0, Q5_0 and Q8_0."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from quant.formats.grid import CodesLastFormat, Grid
from quant.formats.half import half_bytes, half_from_bytes
from quant.formats.levels import WholeLevels
from quant.formats.linear_fit import Search, fit_blocks
from quant.formats.signed_max import codes_of_signed_max


class OneScaleFormat(CodesLastFormat):
    """weight = d * q, q among `levels`, d float16 in the first two bytes of the block.

    The fast way without importance is ggml's: the scale of the largest magnitude, codes by rounding, its bytes.
    An effort that `searches` does not name rounds in this way whatever the importance.
    """

    block_size = 32
    levels: ClassVar[WholeLevels]
    searches: ClassVar[Mapping[str, Search]]

    def round_blocks(self, blocks: np.ndarray) -> np.ndarray:
        """blocks [B, 32] float32 -> uint8 [B, block_bytes], identical to ggml's reference"""
        d, q = codes_of_signed_max(blocks, -self.levels.lowest)
        return np.concatenate([half_bytes(d), self.pack_codes(q.view(np.int8) + np.int8(self.levels.lowest))], axis=1)

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        if effort not in self.searches or (effort == "fast" and importance is None):
            return self.round_blocks(blocks)
        d, y = fit_blocks(blocks, importance, self.levels, self.searches[effort])
        return np.concatenate([half_bytes(d), self.pack_codes(self.levels.nearest(y))], axis=1)

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        return half_from_bytes(data[:, :2])[:, None] * self.read_codes(data)

    def read_grid(self, data: np.ndarray) -> Grid:
        header = data[:, :2]
        scale = np.repeat(half_from_bytes(header)[:, None], self.block_size, axis=1)
        return Grid(scale, np.zeros_like(scale), self.levels.lowest, self.levels.highest, header)
