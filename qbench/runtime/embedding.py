"""Token embedding straight from a format's bytes."""

import torch
from torch import Tensor

from qbench.runtime.linear import as_tensor, dequantize
from quant.errors import InputError
from quant.qtensor import QTensor


class Embedding:
    """Rows of the table, dequantized when asked for: a large vocabulary never stands in float32."""

    def __init__(self, table: QTensor) -> None:
        self.table = table  # [V, K] in its stored format
        self.size_bytes = table.size_bytes

    def __call__(self, tokens: Tensor) -> Tensor:
        """tokens [B, T] int64 -> [B, T, K] float32"""
        vocab_size, row_size = self.table.shape
        index = tokens.reshape(-1).numpy()
        if index.size and not 0 <= index.min() <= index.max() < vocab_size:
            raise InputError(f"token ids from {index.min()} to {index.max()}, expected 0 to {vocab_size - 1}")
        rows = dequantize(self.table.take_rows(index))
        return as_tensor(rows).view(*tokens.shape, row_size).to(torch.float32)
