"""Steps on the Stiefel manifold: orthogonal matrices that move against a gradient and stay orthogonal.

    W = (G X^T - X G^T) / 2                       skew-symmetric: W X is the gradient G along the manifold
    Y = (I + t/2 W)^-1 (I - t/2 W) X              the Cayley transform: orthogonal, and X - t W X to first order

source  Li et al. 2020, arXiv:2002.01113, algorithm 1, which solves the second line by iteration; square X
"""

import torch
from torch import Tensor


def skew_gradient(matrix: Tensor, gradient: Tensor) -> Tensor:
    """W [K, K] of matrix X [K, K], orthogonal, and its gradient [K, K]: W X is the part of it along the manifold."""
    product = gradient @ matrix.T  # [K, K]
    return (product - product.T) / 2


def cayley_step(matrix: Tensor, skew: Tensor, length: float) -> Tensor:
    """matrix [K, K] float64, moved by `length` against skew [K, K]; solved exactly, so it stays orthogonal"""
    half = length / 2 * skew
    identity = torch.eye(len(matrix), dtype=matrix.dtype)
    return torch.linalg.solve(identity + half, (identity - half) @ matrix)


class CayleySgd:
    """Descent of several orthogonal matrices with momentum, each by a step of a given length.

    matrices   [K, K] float64 each, orthogonal; replaced by `step`
    momentum   share of the last direction
    """

    def __init__(self, matrices: list[Tensor], momentum: float) -> None:
        self.matrices = matrices
        self.momentum = momentum
        self._directions = [torch.zeros_like(matrix) for matrix in matrices]

    def step(self, gradients: list[Tensor], length: float) -> None:
        """length   of each step, in units of the largest possible: the norm of a turn by one radian in every plane"""
        for index, (matrix, gradient) in enumerate(zip(self.matrices, gradients, strict=True)):
            skew = skew_gradient(matrix, gradient.to(matrix.dtype))
            direction = self.momentum * self._directions[index] + skew
            self._directions[index] = direction
            norm = float(direction.norm())
            if norm > 0:
                self.matrices[index] = cayley_step(matrix, direction, length * len(matrix) ** 0.5 / norm)
