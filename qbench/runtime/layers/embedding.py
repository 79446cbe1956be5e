"""Embedding of tokens and positions, the former from the tied head's own weight or straight from a format's bytes."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.layers.linear import as_tensor
from qbench.runtime.layers.norm import Norm
from quant.errors import InputError
from quant.formats import block_format, dequantize
from quant.formats.base import find_decoder
from quant.present import present
from quant.qtensor import QTensor


class Table(Protocol):
    """Anything with rows: a tied head's Linear, or StoredTable."""

    def rows(self, index: np.ndarray) -> Tensor:
        """index [n] int64 -> [n, K] float32"""
        ...


class StoredTable:
    """Rows dequantized from the stored bytes when asked for: a large vocabulary is never in float32."""

    def __init__(self, qtensor: QTensor) -> None:
        self.qtensor = qtensor  # [V, K] in its stored format
        self.size_bytes = qtensor.size_bytes
        self._decode = find_decoder(qtensor.format)

    def rows(self, index: np.ndarray) -> Tensor:
        if self._decode is not None:  # the code below, without the look-ups and checks of each call
            blocks = self.qtensor.parts["blocks"][index]  # [n, K / block_size * block_bytes] uint8
            block_bytes = block_format(self.qtensor.format).block_bytes
            weights = self._decode(blocks.reshape(-1, block_bytes))  # [n * K / block_size, block_size]
            return torch.from_numpy(weights.reshape(len(index), self.qtensor.shape[1]))
        return as_tensor(dequantize(self.qtensor.take_rows(index)))


class Positions:
    """A learned row a position. table [offset + positions, K] float32"""

    def __init__(self, table: Tensor, offset: int = 0) -> None:
        self.table = table
        self.offset = offset

    def __call__(self, positions: Tensor) -> Tensor:
        """[...] int64 -> [..., K] float32"""
        return self.table[positions + self.offset]


def _are_ids(index: np.ndarray, vocab_size: int) -> bool:
    return 0 <= index.min() and index.max() < vocab_size


class Embedding:
    """Rows of a table of `vocab_size` rows; the table may be one that a tied head multiplies with.

    scale      factor of the rows
    positions  added to them then, or None
    norm       of the sum, or None
    """

    def __init__(
        self,
        table: Table,
        vocab_size: int,
        scale: float = 1.0,
        positions: Positions | None = None,
        norm: Norm | None = None,
    ) -> None:
        self.table = table
        self.vocab_size = vocab_size
        self.scale = scale
        self.positions = positions
        self.norm = norm

    def __call__(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """tokens [B, T] int64; positions [T] int64, which learned ones need -> [B, T, K] float32"""
        index = tokens.reshape(-1).numpy()
        # A decode step brings one, whose processor cache holds weights and no Python: each call less counts.
        if index.size and not (
            0 <= index[0] < self.vocab_size if index.size == 1 else _are_ids(index, self.vocab_size)
        ):
            raise InputError(f"token ids from {index.min()} to {index.max()}, expected 0 to {self.vocab_size - 1}")
        x = self.table.rows(index)
        x = x.view(*tokens.shape, x.shape[-1])
        if self.scale != 1:
            x = x * self.scale
        if self.positions is not None:
            x = x + self.positions(present(positions))
        return x if self.norm is None else self.norm(x)
