"""Weights of random values in any format."""

import numpy as np

from quant.formats import Format, TrellisFormat
from quant.qtensor import QTensor

# Any bits are a trellis code, and searching for the best ones takes seconds. The values deviate by 147.8.
TRELLIS_SCALE = 1 / 147.8


def random_weight(fmt: Format, shape: tuple[int, int], rng: np.random.Generator, deviation: float = 1.0) -> QTensor:
    """A weight [N, K] of normal values, or of nearly normal ones in a trellis code"""
    if not isinstance(fmt, TrellisFormat):
        return fmt.quantize((deviation * rng.standard_normal(shape)).astype(np.float32))
    fmt.check_matrix(shape)
    words = rng.integers(0, 1 << 16, (shape[0] * shape[1] // 256, fmt.code.num_words), dtype=np.uint16)
    scale = (deviation * TRELLIS_SCALE * rng.uniform(0.5, 1.5, (shape[0], 1))).astype(np.float32)
    return fmt.pack(words, scale, shape)
