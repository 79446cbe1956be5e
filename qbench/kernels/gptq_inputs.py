"""Inputs of the benchmarks of GPTQ's steps, ours and the peers'."""

from dataclasses import dataclass
from functools import cache

import numpy as np

SCALES = 8  # of a super-block of Q4_K, whose grids are rounded to
STEP, LOWEST, QMAX = np.float32(0.25), np.float32(-2), 15
SEED = 18


@dataclass(frozen=True, slots=True)
class Inputs:
    """x [M, K] that was seen, hessian [K, K] = x^T x and some damping, weight [N, K], the scales of Q4_K's grids"""

    x: np.ndarray
    hessian: np.ndarray
    weight: np.ndarray
    scale: np.ndarray  # [N, SCALES] of every super-block
    offset: np.ndarray


@cache
def inputs(size: int, num_tokens: int) -> Inputs:
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((num_tokens, size)).astype(np.float32)
    hessian = x.T @ x + np.float32(0.01 * num_tokens) * np.eye(size, dtype=np.float32)
    weight = rng.standard_normal((size, size)).astype(np.float32)
    grids = np.ones((size, SCALES), np.float32)
    return Inputs(x, hessian, weight, STEP * grids, LOWEST * grids)
