"""Floats of 4 and 8 bits without infinities: their codes and values.

E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, two in a byte.
E4M3, one in a byte:

bit 7   6      3 2        0
+-+------------+----------+
|s|  exponent  | mantissa |   2**(exponent - 7) * 1.mantissa; exponent 0: mantissa * 2**-9; 0x7F and 0xFF: NaN
+-+------------+----------+

source  OCP Microscaling Formats (MX) v1.0, section 5.3.3; Micikevicius et al. 2022, arXiv:2209.05433, table 1
"""

import numpy as np

MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
E2M1_VALUES = np.concatenate([MAGNITUDES, -MAGNITUDES])
E2M1_MAX = np.float32(6)


def _middles() -> np.ndarray:
    """[7] float32: values above the i-th round to magnitude i + 1; a tie goes to the even code."""
    middles = (MAGNITUDES[1:] + MAGNITUDES[:-1]) / 2
    goes_up = np.arange(7) % 2 == 1
    return np.where(goes_up, np.nextafter(middles, np.float32(0)), middles)


MIDDLES = _middles()


def to_e2m1(values: np.ndarray) -> np.ndarray:
    """float32 -> code uint8 in 0..15, nearest, ties to even codes; beyond 6 saturates, and -0 becomes 0"""
    code = np.searchsorted(MIDDLES, np.abs(values), side="left").astype(np.uint8)
    return code | ((values < 0) & (code > 0)).astype(np.uint8) << 3


def pack_pairs(codes: np.ndarray) -> np.ndarray:
    """[..., 2n] uint8 below 16 -> [..., n]: the even one of two neighbours in the low nibble"""
    return codes[..., ::2] | codes[..., 1::2] << 4


def unpack_pairs(data: np.ndarray) -> np.ndarray:
    """[..., n] uint8 -> [..., 2n] uint8"""
    return np.stack([data & 15, data >> 4], axis=-1).reshape(*data.shape[:-1], 2 * data.shape[-1])


E4M3_MAX = np.float32(448.0)
NAN = 0x7F
SMALLEST_NORMAL = np.float32(2.0**-6)


def _values() -> np.ndarray:
    """[256] float32, the value of each byte"""
    byte = np.arange(256)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    value = np.where(byte & NAN == NAN, np.nan, value)
    return np.where(byte > 127, -value, value).astype(np.float32)


E4M3_VALUES = _values()


def to_e4m3(values: np.ndarray) -> np.ndarray:
    """float32 -> uint8, nearest, ties to even; magnitudes beyond 448 saturate, infinities too, and NaN stays NaN"""
    magnitude = np.minimum(np.abs(values), E4M3_MAX)
    bits = magnitude.view(np.uint32)
    rounded = bits + 0x7FFFF + (bits >> 20 & 1) >> 20  # 3 bits of the mantissa are left
    with np.errstate(invalid="ignore"):
        small = np.rint(magnitude * np.float32(512)).astype(np.uint32)  # 8 is the smallest normal number
    code = np.where(magnitude < SMALLEST_NORMAL, small, rounded - (120 << 3))
    code = np.where(np.isnan(values), NAN, code) | np.signbit(values).astype(np.uint32) << 7
    return code.astype(np.uint8)


def round_to_e4m3(values: np.ndarray) -> np.ndarray:
    """float32 -> the nearest value of E4M3, float32"""
    return E4M3_VALUES[to_e4m3(values)]
