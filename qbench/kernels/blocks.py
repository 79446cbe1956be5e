"""Scores of blocks by which queries choose the blocks that they read."""

from collections.abc import Iterator

import numpy as np

from cpu_kernels.blocks import score_blocks, score_blocks_ref
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import Deviation, deviation

SHAPES = ((1, 1, 1, 16), (2, 3, 63, 48), (1, 8, 131, 128))  # Q, G, n, C
SEED = 21


def block_scores() -> list[Kernel]:
    return [Kernel("block_scores", problems)]


def problems() -> Iterator[Problem]:
    rng = np.random.default_rng(SEED)
    for queries, heads, num_rows, size in SHAPES:
        rows = rng.standard_normal((heads, num_rows, size)).astype(np.float16)
        yield problem(rows, rng.standard_normal((queries, heads, size)).astype(np.float32))


def problem(rows: np.ndarray, vectors: np.ndarray) -> Problem:
    num_rows, size = rows.shape[1:]

    def run(isa: str) -> tuple[np.ndarray, str]:
        scores = np.full((*vectors.shape[:2], num_rows), np.nan, np.float32)
        return scores, score_blocks(rows.view(np.uint16), num_rows, vectors, scores, isa=isa)

    def check(got: np.ndarray) -> Deviation:
        """float32 sums of `size` fused products, whose roundings are at most 2**-24 of the magnitudes' sum each."""
        magnitudes = score_blocks_ref(np.abs(rows), np.abs(vectors))
        return deviation(got, score_blocks_ref(rows, vectors), 2.0**-24 * (size + 1) * magnitudes)

    return Problem(f"Q={len(vectors)} G={len(rows)} n={num_rows} C={size}", run, check)
