"""Turns: orthogonal matrices that spread each channel over all others, as products of small factors.

    Q = diag(signs) (F1 x F2 x ... x Fn)      x: the Kronecker product

Each power of two in the size is Hadamard factors, and the odd rest is one orthonormal cosine transform, so every size
has a turn. The signs are random bits that depend on the size and on a purpose: readers and writers of equal channels
have equal turns.

`Turn` multiplies by the factors in float64, for weights that are written once. `turn_runs` takes powers of two alone,
by butterflies in float32: single sums and differences in a fixed order, so that every machine and every kernel comes to
the same bits.
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
    return Turn(random_signs("turn", size), tuple(factors))


def turn_runs(values: np.ndarray, size: int, back: bool = False) -> np.ndarray:
    """values [..., K] -> float32: each `size` of K times signs, then times a Hadamard matrix; `back`: the inverse

    size   a power of two that divides K
    """
    signs = run_signs(size)
    runs = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, size)
    turned = hadamard_runs(runs if back else runs * signs, size)
    return (turned * signs if back else turned).reshape(values.shape)


def hadamard_runs(values: np.ndarray, size: int) -> np.ndarray:
    """values [..., K] -> float32: each `size` of K, a power of two, times Sylvester's matrix: its own inverse"""
    turned = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, size)
    half = 1
    while half < size:
        pairs = turned.reshape(-1, size // (2 * half), 2, half)
        turned = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        half *= 2
    return (turned.reshape(-1, size) * np.float32(size**-0.5)).reshape(values.shape)


@lru_cache
def run_signs(size: int) -> np.ndarray:
    """[size] float32, those of `turn_runs`; cpu_kernels/csrc/turn has the same"""
    return random_signs("signs", size).astype(np.float32)


def random_signs(purpose: str, size: int) -> np.ndarray:
    """[size] float64, 1 or -1 by bits that depend on the purpose and the size alone"""
    data = hashlib.shake_128(f"{purpose} of {size}".encode()).digest(-(-size // 8))
    return 1 - 2.0 * np.unpackbits(np.frombuffer(data, dtype=np.uint8))[:size]


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
