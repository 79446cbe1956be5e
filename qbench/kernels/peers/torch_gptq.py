"""GPTQ's costly steps as plain torch does them, in the arithmetic of the paper's own code.

source   Frantar et al., arXiv 2210.17323, algorithm 1
"""

import numpy as np
import torch
from torch import Tensor

from qbench.kernels.gptq_inputs import Inputs

BLOCK = 128  # columns whose errors reach those behind them in one product, as in the paper


class Gram:
    """x^T x in float32"""

    how, dtype = "float32", torch.float32

    def __init__(self, given: Inputs) -> None:
        self.x = torch.from_numpy(given.x)

    def run(self) -> None:
        x = self.x.to(self.dtype)
        self.gram = x.T @ x

    def output(self) -> np.ndarray:
        return self.gram.float().triu().numpy()


class RoundedGram(Gram):
    """The same with x rounded to bfloat16, and so the result; the first rounding is timed."""

    how, dtype = "bfloat16", torch.bfloat16


class Chain:
    """U, upper triangular, of the inverse of the Hessian = U^T U"""

    how = "cholesky, inverse, cholesky"

    def __init__(self, given: Inputs) -> None:
        self.hessian = torch.from_numpy(given.hessian)

    def run(self) -> None:
        self.factor = inverse_factor(self.hessian)

    def output(self) -> np.ndarray:
        """[K], one over U's diagonal, which is that of its inverse"""
        return self.factor.diagonal().reciprocal().numpy()


class Blocks:
    """Column after column within a block, and the block's errors to all behind it by one product."""

    how = f"blocks of {BLOCK}"

    def __init__(self, given: Inputs) -> None:
        self.weight = torch.from_numpy(given.weight)
        self.scale, self.offset = (torch.from_numpy(grids[:, 0]) for grids in (given.scale, given.offset))
        self.factor = inverse_factor(torch.from_numpy(given.hessian))

    def run(self) -> None:
        weight, factor = self.weight.clone(), self.factor
        self.codes = torch.empty(weight.shape, dtype=torch.int8)
        for start in range(0, weight.shape[1], BLOCK):
            end = min(start + BLOCK, weight.shape[1])
            errors = torch.empty(len(weight), end - start)  # [N, block]
            for c in range(start, end):
                q = ((weight[:, c] - self.offset) / self.scale).round_().clamp_(0, 15)
                self.codes[:, c] = q
                errors[:, c - start] = (weight[:, c] - q.mul_(self.scale).add_(self.offset)) / factor[c, c]
                weight[:, c + 1 : end].addr_(errors[:, c - start], factor[c, c + 1 : end], alpha=-1)
            weight[:, end:].addmm_(errors, factor[start:end, end:], alpha=-1)

    def output(self) -> np.ndarray:
        return self.codes.numpy()


def inverse_factor(hessian: Tensor) -> Tensor:
    lower = torch.linalg.cholesky(hessian)
    return torch.linalg.cholesky(torch.cholesky_inverse(lower), upper=True)
