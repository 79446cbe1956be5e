"""A random weight in a format, random activations for it, and checks of packed linears."""

from collections.abc import Callable

import numpy as np
import torch
from support.close import assert_close

from quant.formats import FORMATS, ActivationFormat, get_format
from quant.qtensor import QTensor

# Formats that a weight alone is enough for: others are only read, or need a scale of inputs that calibration finds.
WRITTEN = [
    name
    for name, fmt in FORMATS.items()
    if fmt.writes and not (isinstance(fmt, ActivationFormat) and fmt.static_inputs)
]


def random_qtensor(format_name: str, num_rows: int, row_size: int, seed: int = 0) -> QTensor:
    weight = np.random.default_rng(seed).standard_normal((num_rows, row_size)) / np.sqrt(row_size)
    return get_format(format_name).quantize_ref(weight.astype(np.float32))


def random_x(num_tokens: int, row_size: int) -> torch.Tensor:
    return torch.randn(num_tokens, row_size, generator=torch.Generator().manual_seed(2))


def assert_a_token_does_not_see_its_batch(num_tokens: int, one: Callable, *batches: Callable) -> None:
    """Each of `batches` gives the results [M, N] of `one`, token by token, for activations [M, 768] float32."""
    x = np.random.default_rng(2).standard_normal((num_tokens, 768)).astype(np.float32)
    alone = np.concatenate([one(x[m : m + 1]) for m in range(len(x))])
    for batch in batches:
        assert_close(batch(x), alone)


def assert_rows_are(values: np.ndarray, rows: Callable[[np.ndarray], np.ndarray]) -> None:
    """rows: index [n] -> [n, K], which must be those of values [N, K]"""
    index = np.random.default_rng(6).integers(0, len(values), 40)
    assert_close(rows(index), values[index])
