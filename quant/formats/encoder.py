"""Where a format's fast encoder comes from: the C++ kernels, if they are built and have it."""

from collections.abc import Callable

import numpy as np

# (blocks [B, block_size] float32, importance [P, block_size] float32 | None, effort) -> uint8 [B, block_bytes]
Encode = Callable[[np.ndarray, np.ndarray | None, str], np.ndarray]


def find_encoder(name: str) -> Encode | None:
    """The kernel that encodes this format, None where this installation has none: the NumPy codec is then the way."""
    try:
        from cpu_kernels.encode import ENCODED_FORMATS, encode
    except ImportError:
        return None
    if name not in ENCODED_FORMATS:
        return None
    return lambda blocks, importance, effort: encode(name, blocks, importance, effort)
