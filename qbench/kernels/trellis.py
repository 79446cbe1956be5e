"""Tiles of a trellis code: the bits are those of the NumPy search."""

from functools import cache

import numpy as np

# It returns the instruction set that ran; cpu_kernels.trellis does not.
from cpu_kernels._ext import trellis_encode
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import deviation
from quant.formats.trellis import TILE, TrellisCode

CODES = (TrellisCode(1, 8), TrellisCode(2, 10), TrellisCode(3, 9), TrellisCode(4, 8), TrellisCode(4, 11))
NUM_TILES = 2
SEED = 29


def trellis() -> list[Kernel]:
    return [Kernel("trellis", lambda: map(problem, CODES))]


def problem(code: TrellisCode) -> Problem:
    x = tiles(NUM_TILES)

    def run(isa: str) -> tuple[np.ndarray, str]:
        return trellis_encode(x, code.bits, code.state_bits, isa)

    @cache
    def oracle() -> np.ndarray:
        return code.encode_ref(x)

    label = f"bits={code.bits} state_bits={code.state_bits}"
    return Problem(label, run, lambda got: deviation(got, oracle(), 0.0))


def tiles(number: int) -> np.ndarray:
    """Usual values of every other tile; the others go far beyond the code's largest."""
    x = 140 * np.random.default_rng(SEED).standard_normal((number, TILE))
    x[1::2] *= 10
    return x.astype(np.float32)
