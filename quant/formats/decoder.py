"""Where a format's fast decoder comes from: the C++ kernels, if they are built and have it."""

from collections.abc import Callable

import numpy as np

# blocks [B, block_bytes] uint8 -> [B, block_size] float32
Decode = Callable[[np.ndarray], np.ndarray]


def find_decoder(name: str) -> Decode | None:
    """The kernel that decodes this format, None where this installation has none: the NumPy codec is then the way."""
    try:
        from cpu_kernels.decode import DECODED_FORMATS, decode
    except ImportError:
        return None
    if name not in DECODED_FORMATS:
        return None
    return lambda blocks: decode(name, blocks)
