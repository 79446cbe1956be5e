"""E2M1: 4-bit floats 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, two in a byte.

source  OCP Microscaling Formats (MX) v1.0, section 5.3.3
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
