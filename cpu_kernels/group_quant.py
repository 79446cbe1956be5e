"""Weights to whole numbers under float scales, and back.

Codes, scales and values are defined by the NumPy codecs of the library above this one (integer groups, int8 per
channel); every instruction set and every number of threads comes to the same bits.
"""

import numpy as np

from cpu_kernels import _ext


def quantize_groups(
    weight: np.ndarray, bits: int, group_size: int, symmetric: bool = True, isa: str | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Round to nearest on the grid that spans each group of input features.

    weight       [N, K] float32, contiguous, finite; K a multiple of group_size
    bits         2, 3, 4 or 8
    isa          implementation by name; None: the best, at most QBENCH_ISA
    returns      packed [N, ceil(K * bits / 32)] int32, q + 2**(bits - 1) in a dense stream; scale [N, G] float16;
                 zero_point [N, G] int8, None where symmetric; weight ~= scale * (q - zero_point)
    raises       ValueError (bits, group_size, shape, strides, NaN or infinity), TypeError (dtype), RuntimeError (isa)
    """
    return _ext.quantize_groups(weight, bits, group_size, symmetric, isa)[:3]


def dequantize_groups(
    packed: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None,
    bits: int,
    row_size: int,
    group_of: np.ndarray | None = None,
    isa: str | None = None,
) -> np.ndarray:
    """The codes of `quantize_groups` as float32 [N, row_size].

    group_of     [K] int32: the group of each input feature; None: groups follow each other
    raises       as quantize_groups
    """
    return _ext.dequantize_groups(packed, scale, zero_point, group_of, bits, row_size, isa)[0]


def quantize_rows(
    weight: np.ndarray, per_tensor: bool = False, isa: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """int8 codes under the scale absmax / 127 of each row, or of the whole weight.

    weight       [N, K] float32, contiguous, finite
    returns      q [N, K] int8, scale [N, 1] float32; weight ~= scale * q
    raises       as quantize_groups
    """
    return _ext.quantize_rows(weight, per_tensor, isa)[:2]


def quantize_llm_int8(weight: np.ndarray, isa: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """int8 codes by bitsandbytes' roundings: weights to float16 first, then times the rounded 127 / absmax.

    weight       [N, K] float32, contiguous, magnitudes at most 65504
    returns      q [N, K] int8, absmax [N] float32 of the rounded weights; weight ~= q * absmax / 127
    raises       as quantize_groups
    """
    q, absmax, _ = _ext.quantize_llm_int8(weight, isa)
    return q, absmax[:, 0]


def dequantize_rows(q: np.ndarray, scale: np.ndarray, isa: str | None = None) -> np.ndarray:
    """scale * q, float32 [N, K]; q [N, K] int8, scale [N, 1] float32, both contiguous"""
    return _ext.dequantize_rows(q, scale, isa)[0]
