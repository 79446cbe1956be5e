"""E4M3: 8-bit floats without infinities, their bytes and values.

bit 7   6      3 2        0
+-+------------+----------+
|s|  exponent  | mantissa |   2**(exponent - 7) * 1.mantissa; exponent 0: mantissa * 2**-9; 0x7F and 0xFF: NaN
+-+------------+----------+

source  Micikevicius et al. 2022, arXiv:2209.05433, table 1
"""

import numpy as np

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
