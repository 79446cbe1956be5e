"""The Gram matrix of bfloat16-rounded rows: its definition."""

import numpy as np

from cpu_kernels._ext import add_gram

__all__ = ["add_gram", "add_gram_ref", "round_to_bfloat16"]


def add_gram_ref(x: np.ndarray, gram: np.ndarray) -> None:
    """gram [K, K] float64 += x^T x with x [M, K] float32 rounded to bfloat16; the kernel's is its upper triangle."""
    rounded = round_to_bfloat16(x).astype(np.float64)
    gram += rounded.T @ rounded


def round_to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 with the upper 16 bits alone: to the nearest, ties to the even one. NaN must not come."""
    bits = x.view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) & np.uint32(0xFFFF0000)).view(np.float32)
