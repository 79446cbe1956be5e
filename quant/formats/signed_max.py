"""The scale rule of Q4_0 and Q5_0: the weight of largest magnitude, sign included, takes the code 0."""

import numpy as np

from quant.formats.half import HALF_MAX, inverse, to_half


def codes_of_signed_max(blocks: np.ndarray, half_range: int) -> tuple[np.ndarray, np.ndarray]:
    """One scale per block and the codes, weight ~= d * (q - half_range).

    The two's complement range has one more step below zero than above; d may be negative so that the
    largest magnitude always uses it. Codes come from the unrounded d, as in ggml's reference.

    blocks   [B, n] float32
    returns  d [B] float16; q [B, n] uint8 in 0..2 * half_range - 1
    """
    at = np.abs(blocks).argmax(axis=1)
    extreme = np.take_along_axis(blocks, at[:, None], axis=1)[:, 0]
    d = np.clip((extreme + 0) / np.float32(-half_range), -HALF_MAX, HALF_MAX)  # + 0: -0.0 counts as 0.0
    scaled = blocks * inverse(d)[:, None] + np.float32(half_range + 0.5)
    q = np.clip(scaled, 0, 2 * half_range - 1).astype(np.uint8)  # the cast truncates: + 0.5 made it a rounding
    return to_half(d), q
