"""Linears on stored codes: y = x @ weight.T, x rounded to 8 bits in blocks of 32."""

from collections.abc import Iterator
from functools import cache

import numpy as np

import cpu_kernels
from cpu_kernels.linear_q8_0 import linear_q8_0_ref
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import Deviation, deviation
from quant.formats import get_format

# M, N, K: panels are 16 rows wide, tiles 6 or 12 tokens high.
SHAPES = ((1, 1, 32), (3, 63, 96), (5, 17, 4096), (13, 16, 64), (131, 131, 64))
SEED = 13
BLOCK_SIZE, BLOCK_BYTES = 32, 34


def linears() -> list[Kernel]:
    return [Kernel("linear_q8_0", problems)]


def problems() -> Iterator[Problem]:
    for shape in SHAPES:
        yield problem(*shape)


def problem(num_tokens: int, num_rows: int, row_size: int) -> Problem:
    rng = np.random.default_rng((SEED, num_tokens, num_rows, row_size))
    weight = rng.standard_normal((num_rows, row_size)).astype(np.float32)
    blocks = get_format("q8_0").quantize(weight).parts["blocks"]
    x = rng.standard_normal((num_tokens, row_size)).astype(np.float32)
    packed = cpu_kernels.PackedQ8_0(blocks)

    def run(isa: str) -> tuple[np.ndarray, str]:
        out = np.full((num_tokens, num_rows), np.nan, np.float32)
        return packed.matmul(x, isa=isa, out=out), packed.last_isa

    @cache
    def oracle() -> tuple[np.ndarray, np.ndarray]:
        return linear_q8_0_ref(x, blocks), rounding_bound(x, blocks)

    def check(y: np.ndarray) -> Deviation:
        return deviation(y, *oracle())

    return Problem(f"M={num_tokens} N={num_rows} K={row_size}", run, check)


def rounding_bound(x: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """What float32 may lose against the oracle, per output [M, N].

    Each of the B terms is rounded twice (the product of the scales, then with the integer) and each of the B additions
    once, by at most 2**-24 of a partial sum: (B + 2) * 2**-24 * sum over blocks of |term|.
    """
    num_blocks = x.shape[1] // BLOCK_SIZE
    terms = [
        np.abs(
            linear_q8_0_ref(
                x[:, BLOCK_SIZE * b : BLOCK_SIZE * (b + 1)], blocks[:, BLOCK_BYTES * b : BLOCK_BYTES * (b + 1)]
            )
        )
        for b in range(num_blocks)
    ]
    return (num_blocks + 2) * 2.0**-24 * np.sum(terms, axis=0)
