"""The decoders of block formats: the weights are those of the NumPy codecs, exactly."""

from collections.abc import Iterator
from functools import cache, partial

import numpy as np

from cpu_kernels.decode import DECODED_FORMATS, decode_blocks
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import deviation
from quant.formats import block_format

NUM_BLOCKS = (1, 3, 131)
SEED = 15


def decoders() -> list[Kernel]:
    return [Kernel(f"decode_{name}", partial(problems, name)) for name in DECODED_FORMATS]


def problems(name: str) -> Iterator[Problem]:
    """Blocks of random bytes: every code, and scales that are subnormal, infinite and NaN among them."""
    _, block_bytes = DECODED_FORMATS[name]
    blocks = np.random.default_rng(SEED).integers(0, 256, (NUM_BLOCKS[-1], block_bytes), dtype=np.uint8)
    for num_blocks in NUM_BLOCKS:
        yield problem(name, blocks[:num_blocks])


def problem(name: str, blocks: np.ndarray) -> Problem:
    @cache
    def oracle() -> np.ndarray:
        with np.errstate(all="ignore"):
            return block_format(name).dequantize_blocks(blocks)

    return Problem(
        f"B={len(blocks)}",
        lambda isa: decode_blocks(name, blocks, isa),
        lambda weights: deviation(weights, oracle(), 0.0),
    )
