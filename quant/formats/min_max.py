"""A float16 scale and minimum for 32 weights: what Q4_1 and Q5_1 have in common."""

import numpy as np

from quant.formats.grid import Grid
from quant.formats.half import HALF_MAX, half_from_bytes, inverse, to_half


def fit_min_max(blocks: np.ndarray, qmax: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The grid from the lowest weight to the highest, and the nearest codes: the bytes of ggml's reference.

    blocks   [B, 32] float32; beyond +-65504, where float16 d and m end, weights saturate
    returns  d, m [B] float16; q [B, 32] uint8 in 0..qmax
    """
    blocks = np.clip(blocks, -HALF_MAX, HALF_MAX)
    m = blocks.min(axis=1)
    d = (blocks.max(axis=1) - m) / np.float32(qmax)
    # Codes come from the unrounded d and m, and the cast truncates: + 0.5 made it a rounding.
    scaled = (blocks - m[:, None]) * inverse(d)[:, None] + np.float32(0.5)
    return to_half(d + 0), to_half(m + 0), np.clip(scaled, 0, qmax).astype(np.uint8)  # + 0: -0.0 is stored as 0.0


def grid_of_d_and_m(data: np.ndarray, qmax: int) -> Grid:
    """data [B, block_bytes] uint8 that begins with d and m -> the grid of each block"""
    d, m = half_from_bytes(data[:, :2]), half_from_bytes(data[:, 2:4])
    scale, offset = (np.repeat(value[:, None], 32, axis=1) for value in (d, m))
    return Grid(scale, offset, 0, qmax, data[:, :4])
