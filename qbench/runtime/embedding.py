"""Token embedding, from the tied head's own weight or straight from a format's bytes."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.linear import as_tensor
from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.formats.decoder import find_decoder
from quant.qtensor import QTensor


class Table(Protocol):
    """Anything with rows: a tied head's Linear, or StoredTable."""

    def rows(self, index: np.ndarray) -> Tensor:
        """index [n] int64 -> [n, K] float32"""
        ...


class StoredTable:
    """Rows dequantized from the stored bytes when asked for: a large vocabulary never stands in float32."""

    def __init__(self, qtensor: QTensor) -> None:
        self.qtensor = qtensor  # [V, K] in its stored format
        self.size_bytes = qtensor.size_bytes
        self._decode = find_decoder(qtensor.format)

    def rows(self, index: np.ndarray) -> Tensor:
        if self._decode is not None:  # what follows, without what each call of it looks up and checks
            blocks = self.qtensor.parts["blocks"][index]  # [n, K / block_size * block_bytes] uint8
            block_bytes = get_format(self.qtensor.format).block_bytes
            weights = self._decode(blocks.reshape(-1, block_bytes))  # [n * K / block_size, block_size]
            return torch.from_numpy(weights.reshape(len(index), self.qtensor.shape[1]))
        return as_tensor(dequantize(self.qtensor.take_rows(index)))


class Embedding:
    """Rows of a table of `vocab_size` rows; the table may be one that a tied head multiplies with."""

    def __init__(self, table: Table, vocab_size: int) -> None:
        self.table = table
        self.vocab_size = vocab_size

    def __call__(self, tokens: Tensor) -> Tensor:
        """tokens [B, T] int64 -> [B, T, K] float32"""
        index = tokens.reshape(-1).numpy()
        if index.size and not 0 <= index.min() <= index.max() < self.vocab_size:
            raise InputError(f"token ids from {index.min()} to {index.max()}, expected 0 to {self.vocab_size - 1}")
        return self.table.rows(index).unflatten(0, tokens.shape)
