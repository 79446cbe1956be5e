"""Super-blocks of 8 x 32 weights with 6-bit scales and minima: what Q4_K and Q5_K have in common."""

from typing import NamedTuple

import numpy as np

from quant.formats.affine_fit import fit_scale_and_minimum
from quant.formats.half import HALF_MAX, inverse, to_half
from quant.formats.k_scales import unpack_k_scales

SCALE_MAX = np.float32(63)  # 6 bits


class KAffine(NamedTuple):
    """weight = d * scales * q - dmin * minima"""

    d: np.ndarray  # [B] float32, exact in float16
    dmin: np.ndarray  # [B] float32, exact in float16
    scales: np.ndarray  # [B, 8] uint8 below 64
    minima: np.ndarray  # [B, 8] uint8 below 64
    q: np.ndarray  # [B, 8, 32] uint8


def quantize_k_affine(blocks: np.ndarray, qmax: int) -> KAffine:
    """blocks [B, 256] float32 -> codes 0..qmax and their two levels of scales

    Weights beyond +-63 * 65504, where float16 d and dmin end, saturate.
    """
    x = np.clip(blocks, -SCALE_MAX * HALF_MAX, SCALE_MAX * HALF_MAX).reshape(-1, 8, 32)
    scale, minimum = fit_scale_and_minimum(x.reshape(-1, 32), qmax)
    d, scales = _six_bits(scale.reshape(-1, 8))
    dmin, minima = _six_bits(minimum.reshape(-1, 8))
    q = _codes(x, d, dmin, scales, minima, qmax)
    d, dmin = _refit(x, d, dmin, scales, minima, q)
    q = _codes(x, d, dmin, scales, minima, qmax)
    return KAffine(d, dmin, scales.astype(np.uint8), minima.astype(np.uint8), q.astype(np.uint8))


def dequantize_k_affine(d: np.ndarray, dmin: np.ndarray, packed_scales: np.ndarray, q: np.ndarray) -> np.ndarray:
    """d, dmin [B] float32, packed_scales [B, 12] uint8, q [B, 8, 32] uint8 -> [B, 256] float32"""
    scales, minima = unpack_k_scales(packed_scales)
    scale = (d[:, None] * scales.astype(np.float32))[:, :, None]  # [B, 8, 1]
    minimum = (dmin[:, None] * minima.astype(np.float32))[:, :, None]
    return (scale * q.astype(np.float32) - minimum).reshape(len(q), 256)


def _six_bits(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """values [B, 8] >= 0 -> unit [B] float32 exact in float16, codes [B, 8] float32 in 0..63"""
    unit = to_half(values.max(axis=1) / SCALE_MAX).astype(np.float32)
    return unit, np.clip(np.rint(values * inverse(unit)[:, None]), 0, SCALE_MAX)


def _codes(x: np.ndarray, d, dmin, scales, minima, qmax: int) -> np.ndarray:
    """Nearest codes [B, 8, 32] float32 of x under scales as they are stored."""
    shifted = x + (dmin[:, None] * minima)[:, :, None]
    return np.clip(np.rint(shifted * inverse(d[:, None] * scales)[:, :, None]), 0, qmax)


def _refit(x: np.ndarray, d, dmin, scales, minima, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(d, dmin) of least squared error for codes and 6-bit scales as they are; kept where that is not unique."""
    a = scales[:, :, None] * q  # x ~= d * a - dmin * b, b = minima for all 32 weights
    aa = np.einsum("bij,bij->b", a, a)
    ab = np.einsum("bij,bi->b", a, minima)
    bb = 32 * np.einsum("bi,bi->b", minima, minima)
    ax = np.einsum("bij,bij->b", a, x)
    bx = np.einsum("bi,bi->b", minima, x.sum(axis=2))
    determinant = aa * bb - ab * ab
    unique = determinant > np.float32(1e-3) * aa * bb  # float32 sums are good to about 1e-5
    divisor = np.where(unique, determinant, 1)
    new_d, new_dmin = (ax * bb - bx * ab) / divisor, (ax * ab - bx * aa) / divisor
    usable = unique & (new_d > 0) & (new_dmin > 0)
    half = [to_half(np.where(usable, new, old)).astype(np.float32) for new, old in ((new_d, d), (new_dmin, dmin))]
    return half[0], half[1]
