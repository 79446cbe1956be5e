"""Where a format's fast decoder comes from: the C++ kernels, if they are built and have it."""

from collections.abc import Callable

import numpy as np

from quant.extension import import_kernels

# blocks [B, block_bytes] uint8 -> [B, block_size] float32
Decode = Callable[[np.ndarray], np.ndarray]


def find_decoder(name: str) -> Decode | None:
    """The kernel that decodes this format, None if this installation has no such kernel: then the NumPy codec runs."""
    kernels = import_kernels("cpu_kernels.decode")
    if kernels is None or name not in kernels.DECODED_FORMATS:
        return None
    return lambda blocks: kernels.decode(name, blocks)
