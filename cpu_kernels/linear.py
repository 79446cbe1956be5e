"""Linear layers with weights made of blocks or groups: the definition of their arithmetic.

    x[m, k]    ~=  x_scale[m, b] * x_q[m, k]            b = k // 32, rounded here, a block of 32 at a time
    y[m, n]     =  sum over k of  weight[n, k] * x_scale[m, b] * x_q[m, k]

    x_scale     =  absmax / 127 in float32
    x_q         =  x * (127 / absmax) in float32, to the nearest integer, ties to even
    A block whose absmax is below 2**-119 counts as zeros; one that holds NaN or infinity has the scale NaN,
    so that every output of that token is NaN.

The kernels sum integer products of codes exactly in int32 at any K (32 * 127 * 255 < 2**20 between two scales), and
differ from each other and from this file in the rounding of the float32 sums of these alone; the codes x_q and the
scales are equal bit for bit.

On the path bf16, which tile instructions take for many tokens, activations and weights are rounded to bfloat16 instead,
and their products summed in float32: `linear_bf16_ref`.
"""

import numpy as np

from cpu_kernels.linear_float import SMALLEST_NORMAL, linear_float_ref, round_to_bf16_ref
from cpu_kernels.linear_float import rounding_bound as float_rounding_bound

BLOCK_SIZE = 32
SMALLEST_ABSMAX = np.float32(2.0**-119)  # below, 127 / absmax overflows


def quantize_activations_ref(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 codes and float32 scales of activations, one scale per 32 input features.

    x        [M, K] float32; a last block that is not full counts as filled with zeros
    returns  codes [M, ceil(K / 32), 32] int8 in [-127, 127]; scale [M, ceil(K / 32)] float32
    """
    filled = np.pad(x, ((0, 0), (0, -x.shape[1] % BLOCK_SIZE)))
    blocks = filled.reshape(len(x), -1, BLOCK_SIZE)  # [M, B, 32]
    absmax = np.abs(blocks).max(axis=-1)  # [M, B], NaN wins
    finite = np.isfinite(absmax)
    zero = ~finite | (absmax < SMALLEST_ABSMAX)
    inverse = np.float32(127) / np.where(zero, np.float32(1), absmax)
    rounded = np.rint(np.where(zero[..., None], np.float32(0), blocks) * inverse[..., None])
    scale = np.where(zero, np.float32(0), absmax / np.float32(127))
    return rounded.astype(np.int8), np.where(finite, scale, np.float32(np.nan)).astype(np.float32)


def round_activations_ref(x: np.ndarray) -> np.ndarray:
    """x_scale * x_q, the activations that the weights meet: x [M, K] float32 -> [M, K] float64"""
    codes, scale = quantize_activations_ref(x)
    return (codes * scale[..., None].astype(np.float64)).reshape(len(x), -1)[:, : x.shape[1]]


def linear_ref(x: np.ndarray, weight: np.ndarray, order: np.ndarray | None = None) -> np.ndarray:
    """y = x @ weight.T with x rounded to int8 per block: the truth that the kernels are compared with.

    x        [M, K] float32
    weight   [N, K] float, the values of the stored bytes
    order    [K] features of x in the order in which they are rounded, 32 at a time; None: as they come
    returns  [M, N] float64
    """
    if order is not None:
        x, weight = x[:, order], weight[:, order]
    return round_activations_ref(x) @ weight.astype(np.float64).T


def rounding_bound(x: np.ndarray, weight: np.ndarray, minimum: np.ndarray | None = None) -> np.ndarray:
    """Largest loss of a kernel's float32 against `linear_ref`.

    x        [M, K] float32
    weight   [N, K] float, the values of the stored bytes
    minimum  [N, K] float, of formats with weight = scale * code + minimum: the two parts are summed apart, so that
             both magnitudes count; None: no minimum
    returns  [M, N] float64

    At most 5 factors and sums of the products are rounded before they are added up; B = ceil(K / 32) steps add one
    term, or with minima three, and each addition rounds by at most 2**-24 of a partial sum, which is no more than
    the sum of all magnitudes.
    """
    num_blocks = -(-x.shape[1] // BLOCK_SIZE)
    parts = np.abs(weight.astype(np.float64)) if minimum is None else np.abs(weight - minimum) + np.abs(minimum)
    additions = num_blocks * (1 if minimum is None else 3)
    return (additions + 5) * 2.0**-24 * (np.abs(round_activations_ref(x)) @ parts.astype(np.float64).T)


def linear_bf16_ref(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """y = x @ weight.T with both rounded to bfloat16: the truth of the path bf16.

    x        [M, K] float32
    weight   [N, K] float32, the values of the stored bytes
    returns  [M, N] float64
    """
    return linear_float_ref(x, weight, rounds_x=True, rounds_weight=True)


def bf16_weight_bound(weight: np.ndarray, minimum: np.ndarray | None = None) -> np.ndarray:
    """How far a weight of the path bf16 may be from its stored value, rounded: [N, K] float64

    weight   [N, K] float32, the values of the stored bytes
    minimum  [N, K] float, of formats with weight = scale * code + minimum; None: no minimum

    Before it is rounded to 8 significant bits it is scale * (n + code) + offset in float32, with n = 128 for codes of 7
    bits and 256 for wider ones. Without a minimum the offset, 128 to 384 scales of at most 17 bits, is exact, and the
    sum is rounded once, as the stored value is: nothing differs. With one the offset is minimum - n scales, rounded,
    and a scale is no larger than the largest weight of a row above its minimum, if not all codes of a row are 0. Only a
    value that is as near to the middle between two bfloat16 may then be rounded to the other one.
    """
    if minimum is None:
        return np.zeros(weight.shape)
    magnitude = np.abs(weight.astype(np.float64))
    scale = np.abs(weight - minimum).max(axis=1, keepdims=True)
    before = 2.0**-24 * (magnitude + 256 * scale + np.abs(minimum))
    step = 2.0 ** (np.floor(np.log2(np.maximum(magnitude, SMALLEST_NORMAL))) - 7)  # from a bfloat16 to the next
    from_middle = np.abs(magnitude / step - np.floor(magnitude / step) - 0.5) * step
    return np.where(from_middle <= before, step + before, 0.0)


def bf16_bound(x: np.ndarray, weight: np.ndarray, minimum: np.ndarray | None = None) -> np.ndarray:
    """Largest loss of a kernel against `linear_bf16_ref`: weights next to the middle, and sums in float32. Tokens that
    are not finite have no bound.
    """
    seen, error = round_to_bf16_ref(x), bf16_weight_bound(weight, minimum)
    seen = np.where(np.isfinite(seen), seen, np.float32(0))
    moved = np.abs(seen).astype(np.float64) @ error.T
    return moved + float_rounding_bound(seen, (np.abs(weight) + error).astype(np.float32))


def reround_ref(codes: np.ndarray, scale: np.ndarray, minimum: np.ndarray | None, largest: int):
    """K-quants as many tokens meet them: int8 codes with one scale for 256 inputs of a row, weight ~= scale * code.

    codes    [N, K] int: 0 to `largest` with minima, within +-largest without
    scale    [N, K] float32, each code's own: weight = scale * code + minimum
    minimum  [N, K] float32; None: no minimum
    returns  codes [N, K] int64 in [-127, 127]; scale [N, K / 256] float32
    """
    blocks = [a.reshape(len(a), -1, 256) for a in (codes, scale, np.zeros_like(scale) if minimum is None else minimum)]
    code, scale, first = blocks[0].astype(np.int64), *blocks[1:]  # [N, K / 256, 256]
    # Over all possible codes.
    absmax = np.maximum(np.abs(first + scale * np.float32(largest)), np.abs(first)).max(axis=-1)
    inverse = np.float32(127 * 256) / np.maximum(absmax, np.float32(2.0**-24))[..., None]
    factor, addend = (np.rint(a * inverse).astype(np.int64) for a in (scale, first))  # 8 bits of fraction
    rounded = (factor * code + addend + 128) >> 8
    return rounded.reshape(codes.shape), absmax * np.float32(1 / 127)


def reround_bound(scale: np.ndarray, largest: int) -> np.ndarray:
    """How far `reround_ref` moves a weight at most: scale [N, K / 256] of the new codes -> [N, K / 256]

    Half a code, and 1/512 of one for each of the at most `largest` units of a code whose factor is rounded, and for
    the addend; float32 rounds the scales of the sum by 3 * 2**-24 each, of at most 127.
    """
    return scale * np.float32(0.5 + (largest + 1) / 512 + 2**-14)
