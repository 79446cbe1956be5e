"""Tiles of 256 values as circles of bits of a trellis, and back.

The code is defined by the NumPy codec of the library above this one (quant/formats/trellis.py); every instruction
set and every number of threads comes to the same bits.
"""

import numpy as np

from cpu_kernels import _ext


def encode(x: np.ndarray, bits: int, state_bits: int, isa: str | None = None) -> np.ndarray:
    """Bits whose values are near x, by the Viterbi algorithm.

    x            [tiles, 256] float32, contiguous, finite, in the units of the code's values (-510 to 510)
    bits         of one value, 1 to 4
    state_bits   bits that decide one value, 8 to 16; each one more doubles the time
    isa          implementation by name; None: the best, at most QBENCH_ISA
    returns      [tiles, 16 * bits] uint16, most significant bit first
    raises       ValueError (shape, strides, bits, NaN or infinity), TypeError (dtype), RuntimeError (isa)
    """
    return _ext.trellis_encode(x, bits, state_bits, isa)[0]


def decode(packed: np.ndarray, bits: int, state_bits: int) -> np.ndarray:
    """The values of these bits, float32 [tiles, 256]; arguments and errors as for `encode`"""
    return _ext.trellis_decode(packed, bits, state_bits)
