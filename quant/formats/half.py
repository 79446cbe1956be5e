"""float16 scales as bytes: the two bytes every GGUF block keeps its scale in."""

import numpy as np

HALF_MAX = np.float32(65504.0)  # largest finite float16


def to_half(value: np.ndarray) -> np.ndarray:
    """float32 -> float16, nearest even; beyond the range the largest finite value, never inf."""
    return np.clip(value, -HALF_MAX, HALF_MAX).astype(np.float16)


def half_bytes(value: np.ndarray) -> np.ndarray:
    """[B] float16 -> [B, 2] uint8, little endian"""
    return value.astype("<f2").view(np.uint8).reshape(-1, 2)


def half_from_bytes(data: np.ndarray) -> np.ndarray:
    """[B, 2] uint8 -> [B] float32"""
    return np.ascontiguousarray(data).view("<f2").astype(np.float32).reshape(-1)


def inverse(scale: np.ndarray) -> np.ndarray:
    """1 / scale, and 0 where scale is 0 or so small that its inverse is no finite float32."""
    smallest = np.float32(2.0**-126)
    usable = np.abs(scale) >= smallest
    return np.where(usable, 1 / np.where(usable, scale, 1), 0).astype(np.float32)
