"""Blocks of GGUF formats to float32 weights.

The values are defined by the NumPy codecs (`dequantize_blocks`) of the library above this one; every instruction set
and every number of threads comes to the same bits.
"""

import numpy as np

from cpu_kernels._ext import decode_blocks, decoded_formats

DECODED_FORMATS: dict[str, tuple[int, int]] = decoded_formats()  # name -> (block_size, block_bytes)


def decode(format_name: str, blocks: np.ndarray, isa: str | None = None, out: np.ndarray | None = None) -> np.ndarray:
    """Weights of a format's blocks, as its NumPy codec reads them.

    blocks       [B, block_bytes] uint8, contiguous
    isa          implementation by name; None: the best, at most QBENCH_ISA
    out          [B, block_size] float32, contiguous, written and returned; None: a new array
    returns      [B, block_size] float32
    raises       ValueError (format, shape, strides), TypeError (dtype), RuntimeError (isa)
    """
    return decode_blocks(format_name, blocks, isa, out)[0]
