"""Bases of the channels that a model's rotation turns: the fixed ones of `quant.turn`, or learned matrices."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from quant.turn import turn_of

RESIDUAL, VALUES = "residual", "values"  # bases that can be learned: R1 and R2 of SpinQuant


class Basis(Protocol):
    def apply(self, values: np.ndarray) -> np.ndarray:
        """values [..., size] -> values Q [..., size] float64, Q orthogonal"""
        ...


@dataclass(frozen=True, slots=True)
class Matrix:
    """matrix   [size, size] float64, orthogonal"""

    matrix: np.ndarray

    def apply(self, values: np.ndarray) -> np.ndarray:
        return values @ self.matrix


@dataclass(frozen=True, slots=True)
class LearnedBases:
    """residual   [hidden_size, hidden_size] float64, orthogonal: of the residual stream
    values     [head_dim, head_dim] float64 of each layer: of each head's values
    """

    residual: np.ndarray
    values: Sequence[np.ndarray]

    def of(self, name: str, layer: int | None) -> Basis:
        return Matrix(self.residual if name == RESIDUAL or layer is None else self.values[layer])

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for matrix in (self.residual, *self.values):
            digest.update(np.ascontiguousarray(matrix, dtype="<f8").tobytes())
        return digest.hexdigest()


def matrix_of(size: int) -> np.ndarray:
    """[size, size] float64, the fixed basis of this many channels"""
    return turn_of(size).apply(np.eye(size))
