"""Blocks of 32 whole-number codes under one float16 scale and nothing else: what Q4_0, Q5_0 and Q8_0 have in common."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from quant.formats.grid import Grid, GridFormat
from quant.formats.half import HALF_MAX, half_bytes, half_from_bytes
from quant.formats.levels import WholeLevels
from quant.formats.linear_fit import Search, fit_blocks


class OneScaleFormat(GridFormat):
    """weight = d * q, q among `levels`, d float16 in the first two bytes of the block.

    The fast way without importance is ggml's: the scale of the largest magnitude, codes by rounding, its bytes.
    An effort that `searches` does not name rounds in this way whatever the importance.
    """

    levels: ClassVar[WholeLevels]
    searches: ClassVar[Mapping[str, Search]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.largest_weight = cls.levels.reach * HALF_MAX

    @abstractmethod
    def round_blocks(self, blocks: np.ndarray) -> np.ndarray:
        """blocks [B, 32] float32 -> uint8 [B, block_bytes], identical to ggml's reference"""

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        if effort not in self.searches or (effort == "fast" and importance is None):
            return self.round_blocks(blocks)
        d, y = fit_blocks(blocks, importance, self.levels, self.searches[effort])
        return self.pack_grid(self._grid(half_bytes(d)), self.levels.nearest(y).astype(np.int8))

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        return half_from_bytes(data[:, :2])[:, None] * self.read_codes(data)

    def read_grid(self, data: np.ndarray) -> Grid:
        return self._grid(data[:, :2])

    def _grid(self, header: np.ndarray) -> Grid:
        scale = np.repeat(half_from_bytes(header)[:, None], self.block_size, axis=1)
        return Grid(scale, np.zeros_like(scale), self.levels.lowest, self.levels.highest, header)
