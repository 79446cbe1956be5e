"""The weights of a K-quant as products of many tokens use them: rounded once more, by the oracle of that rounding."""

import numpy as np

from cpu_kernels.linear import reround_ref
from quant.formats import get_format
from quant.formats.grid import GridFormat
from quant.qtensor import QTensor

PATH = "int8x256"
# The largest code; those of q2_k times their sub-scale of 4 bits, as they are unpacked.
LARGEST = {"q2_k": 3 * 15, "q3_k": 4, "q4_k": 15, "q5_k": 31, "q6_k": 32}
AFFINE = ("q2_k", "q4_k", "q5_k")


def rerounded(format_name: str, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The codes and scales that the path multiplies.

    blocks   [N, B * block_bytes] uint8
    returns  codes [N, K] int64 in [-127, 127]; scale [N, K / 256] float32
    """
    fmt = get_format(format_name)
    assert isinstance(fmt, GridFormat)
    data = blocks.reshape(-1, fmt.block_bytes)
    grid, codes = fmt.read_grid(data), fmt.read_codes(data)
    scale = grid.scale
    if format_name == "q2_k":
        codes = codes * np.repeat(data[:, :16] & 15, 16, axis=1)
        scale = np.repeat(data[:, 80:82].copy().view("<f2").astype(np.float32), 256, axis=1)
    codes, scale, minimum = (part.reshape(len(blocks), -1) for part in (codes, scale, grid.offset))
    return reround_ref(codes, scale, minimum if format_name in AFFINE else None, LARGEST[format_name])


def rerounded_weight(qtensor: QTensor) -> np.ndarray:
    """[N, K] float64"""
    codes, scale = rerounded(qtensor.format, np.ascontiguousarray(qtensor.parts["blocks"]))
    return codes * np.repeat(scale, 256, axis=1).astype(np.float64)
