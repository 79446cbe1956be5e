"""The encoders of block formats: the bytes are those of the NumPy codecs, exactly."""

from collections.abc import Iterator
from functools import cache, partial

import numpy as np

from cpu_kernels.encode import EFFORTS, ENCODED_FORMATS, encode_blocks
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import deviation
from quant.formats import block_format, get_format

NUM_BLOCKS = (1, 3, 131)  # a vector holds 1, 8 or 16 blocks
IMPORTANCE_ROWS = 3
SEED = 11


def encoders() -> list[Kernel]:
    return [Kernel(f"encode_{name}", partial(problems, name)) for name in ENCODED_FORMATS]


def problems(name: str) -> Iterator[Problem]:
    """Usual weights, long tails, ties, zeros and magnitudes at both ends, with and without importance."""
    rng, fmt = np.random.default_rng(SEED), get_format(name)
    blocks = hard_blocks(NUM_BLOCKS[-1], fmt.block_size, rng)
    importance = np.maximum(rng.random((IMPORTANCE_ROWS, fmt.block_size)) ** 4, 2.0**-20).astype(np.float32)
    for effort in EFFORTS:
        for rows in (None, importance):
            for num_blocks in NUM_BLOCKS:
                yield problem(name, blocks[:num_blocks], rows, effort)


def problem(name: str, blocks: np.ndarray, importance: np.ndarray | None, effort: str) -> Problem:
    weighted = "" if importance is None else ", importance"

    def run(isa: str) -> tuple[np.ndarray, str]:
        return encode_blocks(name, blocks, importance, effort == "best", isa)

    @cache
    def oracle() -> np.ndarray:
        of_blocks = None if importance is None else importance[np.arange(len(blocks)) % len(importance)]
        return block_format(name).quantize_blocks(blocks, of_blocks, effort)

    return Problem(f"B={len(blocks)} {effort}{weighted}", run, lambda data: deviation(data, oracle(), 0.0))


def hard_blocks(num_blocks: int, block_size: int, rng: np.random.Generator) -> np.ndarray:
    """[B, block_size] float32, the kinds that break encoders in turn, so that few blocks have them all."""
    blocks = 0.02 * rng.standard_normal((num_blocks, block_size))
    blocks[1::8] = rng.standard_t(2, blocks[1::8].shape)
    blocks[2::8] = rng.integers(-9, 9, blocks[2::8].shape)  # ties, in the largest magnitude too
    blocks[3::8] *= rng.random(blocks[3::8].shape) < 0.03  # nearly all zero
    blocks[4::8] *= 10.0 ** rng.integers(-43, 39, (len(blocks[4::8]), 1))
    blocks[5::8] = np.abs(blocks[5::8]) + 0.3  # no weight near zero
    blocks[6::8] = rng.choice([0.0, -0.0, 0.7, -0.7], (len(blocks[6::8]), 1))
    return np.clip(blocks, -3e38, 3e38).astype(np.float32)
