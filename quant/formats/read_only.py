"""Formats that other programs write and that are only read here."""

import numpy as np

from quant.errors import InputError
from quant.formats.base import BlockFormat


class ReadOnlyFormat(BlockFormat):
    """A block format without an encoder. Recipes refuse it."""

    writes = False

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        raise InputError(f"{self.name} is read but not written here; choose another format")
