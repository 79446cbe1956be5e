"""Gram matrices of bfloat16-rounded rows: the Hessians of calibration."""

from collections.abc import Iterator

import numpy as np

from cpu_kernels.gram import add_gram, add_gram_ref
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import Deviation, deviation

SHAPES = ((1, 1), (3, 63), (131, 65), (130, 131))  # M, K; tokens are in pairs, 64 of them at once, columns in 64
SEED = 13


def gram() -> list[Kernel]:
    return [Kernel("gram", problems)]


def problems() -> Iterator[Problem]:
    rng = np.random.default_rng(SEED)
    for num_tokens, row_size in SHAPES:
        yield problem(rng.standard_normal((num_tokens, row_size)).astype(np.float32))


def problem(x: np.ndarray) -> Problem:
    num_tokens, row_size = x.shape

    def run(isa: str) -> tuple[np.ndarray, str]:
        result = np.ones((row_size, row_size), dtype=np.float32)
        ran = add_gram(x, result, isa=isa)
        return np.triu(result), ran

    def check(got: np.ndarray) -> Deviation:
        """float32 sums of num_tokens exact products, whose roundings are at most 2**-24 of the magnitudes' sum each."""
        expected, magnitudes = np.ones((2, row_size, row_size))
        add_gram_ref(x, expected)
        add_gram_ref(np.abs(x), magnitudes)
        return deviation(got, np.triu(expected), 2**-24 * (num_tokens + 1) * magnitudes)

    return Problem(f"M={num_tokens} K={row_size}", run, check)
