"""Turn: an orthogonal matrix that spreads each channel over all others, as a product of small factors.

    Q = diag(signs) (F1 x F2 x ... x Fn)      x: the Kronecker product

Each power of two in the size is Hadamard factors, and the odd rest is one orthonormal cosine transform, so every size
has a turn. The signs are random bits that depend on the size alone: readers and writers of equal channels have equal
turns.
source   Ashkboos et al. 2024, arXiv:2404.00456 (QuaRot), section 3.1: randomized Hadamard matrices
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

LARGEST_FACTOR = 64  # a product with two factors of 64 costs 128 operations per value; one factor of 4096 costs 4096


@dataclass(frozen=True, slots=True)
class Turn:
    """signs    [size] float64, 1 or -1
    factors  orthogonal matrices whose sizes multiply to `size`
    """

    signs: np.ndarray
    factors: tuple[np.ndarray, ...]

    def apply(self, values: np.ndarray) -> np.ndarray:
        """values [..., size] -> values Q, float64"""
        sizes = tuple(len(factor) for factor in self.factors)
        turned = (values * self.signs).reshape(-1, *sizes)
        for axis, factor in enumerate(self.factors, start=1):
            turned = np.moveaxis(np.moveaxis(turned, axis, -1) @ factor, -1, axis)
        return turned.reshape(values.shape)


@lru_cache
def turn_of(size: int) -> Turn:
    """The turn of this many channels."""
    factors, rest = [], size
    while rest % 2 == 0:
        power = min(rest & -rest, LARGEST_FACTOR)
        factors.append(hadamard(power))
        rest //= power
    if rest > 1 or not factors:
        factors.append(cosines(rest))
    bits = np.frombuffer(hashlib.shake_128(f"turn of {size}".encode()).digest(-(-size // 8)), dtype=np.uint8)
    signs = 1 - 2.0 * np.unpackbits(bits)[:size]
    return Turn(signs, tuple(factors))


def hadamard(size: int) -> np.ndarray:
    """[size, size] float64, Sylvester's matrix for a power of two, scaled to be orthogonal"""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(size)


def cosines(size: int) -> np.ndarray:
    """[size, size] float64, the orthonormal cosine transform (DCT-II)"""
    rows, columns = np.arange(size), np.arange(size)[:, None]
    matrix = np.cos(np.pi / size * columns * (rows + 0.5)) * np.sqrt(2 / size)
    matrix[0] /= np.sqrt(2)
    return matrix
