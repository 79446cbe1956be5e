"""Formats whose codes are steps of a uniform grid: the properties that error feedback (GPTQ) needs to round onto
them.
"""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from quant.formats.base import BlockFormat
from quant.formats.codes import Codes, codes_of_blocks
from quant.qtensor import QTensor


@dataclass(frozen=True, slots=True)
class Grid:
    """The values that the weights of each block may take: scale * q + offset, q in qmin..qmax.

    scale, offset   [B, block_size] float32, exactly as the format's dequantization multiplies and adds them
    header          [B, n] uint8: the blocks' bytes other than codes, in the format's own layout
    """

    scale: np.ndarray
    offset: np.ndarray
    qmin: int
    qmax: int
    header: np.ndarray


class GridFormat(BlockFormat):
    """A block format whose grid can be fitted first and filled with codes later, one column at a time.

    Codebook formats are not grids: their levels are not evenly spaced.
    """

    @abstractmethod
    def read_grid(self, data: np.ndarray) -> Grid:
        """data [B, block_bytes] uint8 -> the grid of each block"""

    @abstractmethod
    def read_codes(self, data: np.ndarray) -> np.ndarray:
        """data [B, block_bytes] uint8 -> q [B, block_size] int8 in qmin..qmax"""

    @abstractmethod
    def pack_grid(self, grid: Grid, q: np.ndarray) -> np.ndarray:
        """Blocks of this grid and these codes, q [B, block_size] integers in qmin..qmax -> uint8 [B, block_bytes]"""

    def fit_grid(self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast") -> Grid:
        """The grid that `quantize` gives these blocks.

        blocks       [B, block_size] float32, finite
        importance   [B, block_size] float32 > 0, the largest of each block about 1, or None
        """
        return self.read_grid(self.encode_blocks(blocks, importance, effort))

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        grid = self.read_grid(data)
        return grid.scale * self.read_codes(data) + grid.offset

    def weight_codes(self, qtensor: QTensor) -> Codes:
        data = np.ascontiguousarray(self._blocks_of(qtensor))
        grid, q = self.read_grid(data), self.read_codes(data)
        at_end = (q == grid.qmin) | (q == grid.qmax)
        return codes_of_blocks(qtensor.shape, q, at_end, grid.scale, grid.qmax - grid.qmin + 1)


class CodesLastFormat(GridFormat):
    """A grid format whose blocks are the grid's header and then the codes."""

    @abstractmethod
    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        """q [B, block_size] integers in qmin..qmax -> uint8 [B, block_bytes - header's]"""

    def pack_grid(self, grid: Grid, q: np.ndarray) -> np.ndarray:
        return np.concatenate([grid.header, self.pack_codes(q)], axis=1)
