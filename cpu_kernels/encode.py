"""float32 weights to the blocks of GGUF formats.

The bytes are defined by the NumPy codecs (`quantize_blocks`) of the library above this one; every instruction set and
every number of threads comes to the same ones.
"""

import numpy as np

from cpu_kernels._ext import encode_blocks, encoded_formats

ENCODED_FORMATS: dict[str, tuple[int, int]] = encoded_formats()  # name -> (block_size, block_bytes)
EFFORTS = ("fast", "best")


def encode(
    format_name: str,
    blocks: np.ndarray,
    importance: np.ndarray | None = None,
    effort: str = "fast",
    isa: str | None = None,
) -> np.ndarray:
    """Blocks of a format, as its NumPy codec makes them.

    blocks       [B, block_size] float32, contiguous, finite
    importance   [P, block_size] float32 in (0, 1], contiguous: block b has row b % P; None: all weights count the same
    effort       "fast" or "best"
    isa          implementation by name; None: the best, at most QBENCH_ISA
    returns      [B, block_bytes] uint8
    raises       ValueError (format, shape, strides, effort, NaN or infinity, an importance outside (0, 1]),
                 TypeError (dtype), RuntimeError (isa)
    """
    if effort not in EFFORTS:
        raise ValueError(f"effort: got {effort!r}, expected one of {', '.join(EFFORTS)}")
    return encode_blocks(format_name, blocks, importance, effort == "best", isa)[0]
