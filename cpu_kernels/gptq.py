"""GPTQ's factor and feedback: the definition of their arithmetic.

    H = R R^T, R upper triangular, in the order in which the columns are rounded
    M[i, c]   = R[i, c] / R[c, c]
    target[c] = weight[c] - sum over i < c of (rounded[i] - weight[i]) * M[i, c]

This is the update of GPTQ (arXiv 2210.17323, eq. 3 and 4) without the inverse of H: the upper Cholesky factor U of
H^-1 = U^T U is R^-1, and the paper's updates of later columns after each rounding sum up to a multiplication by M.
(QuIP, arXiv 2307.13304, theorem 6, has the equality.) One factorization is K^3 / 3 operations; the paper's chain of
factor, inverse and factor is four times that.

The kernels differ from these functions in rounding alone, and not at all among each other: every sum has a fixed
order and is fused in every instruction set.
"""

import numpy as np

from cpu_kernels._ext import GptqFactor, GptqFeedback, gptq_factorize, gptq_search_grid

__all__ = [
    "GptqFactor",
    "GptqFeedback",
    "coefficients_ref",
    "gptq_factorize",
    "gptq_search_grid",
    "targets_ref",
]


def coefficients_ref(hessian: np.ndarray) -> np.ndarray:
    """M [K, K] float64, unit upper triangular, of a positive definite hessian [K, K] in the order of its columns."""
    reversed_factor = np.linalg.cholesky(hessian[::-1, ::-1].astype(np.float64))
    factor = reversed_factor[::-1, ::-1]  # R: reversing a lower triangle twice over makes an upper one
    return factor / factor.diagonal()


def targets_ref(weight: np.ndarray, rounded: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Target of the next column, given those already rounded.

    weight        [N, K] float
    rounded       [N, c], the values of the first c columns
    coefficients  [K, K], unit upper triangular
    returns       [N] float64
    """
    c = rounded.shape[1]
    error = rounded.astype(np.float64) - weight[:, :c]  # [N, c]
    return weight[:, c].astype(np.float64) - error @ coefficients[:c, c]
