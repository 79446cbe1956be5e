"""The Gram matrix of bfloat16-rounded rows: its definition."""

import numpy as np

from cpu_kernels._ext import add_gram
from cpu_kernels.linear_float import round_to_bf16_ref

__all__ = ["add_gram", "add_gram_ref"]


def add_gram_ref(x: np.ndarray, gram: np.ndarray) -> None:
    """gram [K, K] float64 += x^T x with x [M, K] float32 rounded to bfloat16; the kernel's is its upper triangle."""
    rounded = round_to_bf16_ref(x).astype(np.float64)
    gram += rounded.T @ rounded
