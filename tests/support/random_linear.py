"""A random weight in a format, and random activations for it."""

import numpy as np
import torch

from quant.formats import get_format
from quant.qtensor import QTensor


def random_qtensor(format_name: str, num_rows: int, row_size: int, seed: int = 0) -> QTensor:
    weight = np.random.default_rng(seed).standard_normal((num_rows, row_size)) / np.sqrt(row_size)
    return get_format(format_name).quantize_ref(weight.astype(np.float32))


def random_x(num_tokens: int, row_size: int) -> torch.Tensor:
    return torch.randn(num_tokens, row_size, generator=torch.Generator().manual_seed(2))
