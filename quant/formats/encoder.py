"""Where a format's fast encoder comes from: the C++ kernels, if they are built and have it."""

from collections.abc import Callable

import numpy as np

from quant.extension import import_kernels

# (blocks [B, block_size] float32, importance [P, block_size] float32 | None, effort) -> uint8 [B, block_bytes]
Encode = Callable[[np.ndarray, np.ndarray | None, str], np.ndarray]


def find_encoder(name: str) -> Encode | None:
    """The kernel that encodes this format, None if this installation has no such kernel: then the NumPy codec runs."""
    kernels = import_kernels("cpu_kernels.encode")
    if kernels is None or name not in kernels.ENCODED_FORMATS:
        return None
    return lambda blocks, importance, effort: kernels.encode(name, blocks, importance, effort)
