"""Steps between products, a row at a time: RMSNorm and SiLU x up, equal bit for bit to their definition."""

from collections.abc import Iterator

import numpy as np

from cpu_kernels.fused import rms_norm_ref, rms_norm_rows, silu_mul_ref, silu_mul_rows
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import deviation

SHAPES = ((1, 1), (3, 63), (2, 64), (7, 131), (131, 257))  # M, K; 64 sums side by side
EPS = 1e-5
SEED = 16


def fused_rows() -> list[Kernel]:
    return [Kernel("fused_rows", problems)]


def problems() -> Iterator[Problem]:
    """Odd shapes; magnitudes from nothing to overflow, NaN and infinity in the largest."""
    rng = np.random.default_rng(SEED)
    for shape in SHAPES:
        x, other = rng.standard_normal((2, *shape)).astype(np.float32)
        weight = rng.standard_normal(shape[1]).astype(np.float32)
        if shape == SHAPES[-1]:
            x *= np.float32(10.0) ** rng.integers(-38, 38, (shape[0], 1)).astype(np.float32)
            x[2, 17], x[5, 0], other[7, 3] = np.nan, -np.inf, np.inf
        yield norm_problem(x, weight)
        yield silu_problem(x, other)


def norm_problem(x: np.ndarray, weight: np.ndarray) -> Problem:
    return Problem(
        f"rms_norm M={len(x)} K={x.shape[1]}",
        lambda isa: rms_norm_rows(x, weight, EPS, isa, np.full_like(x, np.nan)),
        lambda y: deviation(y, rms_norm_ref(x, weight, EPS), 0.0),
    )


def silu_problem(gate: np.ndarray, up: np.ndarray) -> Problem:
    return Problem(
        f"silu_mul M={len(gate)} K={gate.shape[1]}",
        lambda isa: silu_mul_rows(gate, up, isa, np.full_like(gate, np.nan)),
        lambda y: deviation(y, silu_mul_ref(gate, up), 0.0),
    )
