"""Linear layer with a GGUF Q8_0 weight: the definition of its arithmetic.

    x[m, k]    ~=  x_scale[m, b] * x_q[m, k]            b = k // 32, rounded here, a block of 32 at a time
    w[n, k]     =  w_scale[n, b] * w_q[n, k]            as stored: f16 scale, then 32 int8
    y[m, n]     =  sum over b of  (w_scale[n, b] * x_scale[m, b]) * sum over k in b of w_q[n, k] * x_q[m, k]

    x_scale     =  absmax / 127 in float32
    x_q         =  x * (127 / absmax) in float32, to the nearest integer, ties to even
    A block whose absmax is below 2**-119 counts as zeros; one that holds NaN or infinity has the scale NaN,
    so that every output of that token is NaN.

The inner sum is exact in int32 at any K (32 * 127 * 128 < 2**20). The kernels differ from each other and from this
file in the rounding of the outer float32 sum alone; the codes x_q and the scales are equal bit for bit.
"""

import numpy as np

BLOCK_SIZE = 32
BLOCK_BYTES = 34
SMALLEST_ABSMAX = np.float32(2.0**-119)  # below, 127 / absmax overflows


def quantize_activations_ref(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 codes and float32 scales of activations, one scale per 32 input features.

    x        [M, K] float32; K % 32 == 0
    returns  codes [M, K // 32, 32] int8 in [-127, 127]; scale [M, K // 32] float32
    """
    blocks = x.reshape(len(x), -1, BLOCK_SIZE)  # [M, B, 32]
    absmax = np.abs(blocks).max(axis=-1)  # [M, B], NaN wins
    finite = np.isfinite(absmax)
    zero = ~finite | (absmax < SMALLEST_ABSMAX)
    inverse = np.float32(127) / np.where(zero, np.float32(1), absmax)
    rounded = np.rint(np.where(zero[..., None], np.float32(0), blocks) * inverse[..., None])
    scale = np.where(zero, np.float32(0), absmax / np.float32(127))
    return rounded.astype(np.int8), np.where(finite, scale, np.float32(np.nan)).astype(np.float32)


def linear_q8_0_ref(x: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """y = x @ weight.T with x rounded to int8 per block: the truth that the kernels are compared with.

    x        [M, K] float32
    blocks   [N, K // 32 * 34] uint8, GGUF Q8_0
    returns  [M, N] float64
    """
    stored = blocks.reshape(len(blocks), -1, BLOCK_BYTES)  # [N, B, 34]
    w_scale = stored[..., :2].copy().view(np.float16)[..., 0].astype(np.float64)  # [N, B]
    w_q = stored[..., 2:].view(np.int8).astype(np.float64)  # [N, B, 32]
    x_q, x_scale = quantize_activations_ref(x)  # [M, B, 32], [M, B]
    y = np.zeros((len(x), len(blocks)))
    for b in range(stored.shape[1]):
        dot = x_q[:, b].astype(np.float64) @ w_q[:, b].T  # [M, N]: integers below 2**20, exact in float64
        y += dot * w_scale[:, b] * x_scale[:, b, None].astype(np.float64)
    return y
