"""Linear layers with float weights: the definition of their arithmetic.

    y[m, n]  =  sum over k of weight[n, k] * x[m, k]    in float32

    bf16   x is rounded to bfloat16 under every instruction set, for one token and for many
    f16    x and weight as they are; in the tile path under avx512_bf16 and amx both are rounded to bfloat16
    f32    x and weight as they are

So a token's result in bf16 and f32 depends on nothing but the order of the sum. In f16 it depends on the path, too: up
to 7 tokens of a call are exact products, more are products of bfloat16, which moves each by up to 2**-8 of itself. The
name of the implementation says so; QBENCH_F16_COMPUTE=float32 keeps all of them exact, at half the speed.
"""

import numpy as np

SMALLEST_NORMAL = 2.0**-126
BF16_PRODUCT_ISAS = ("avx512_bf16", "amx")  # those whose kernels of f16 weights round both sides


def round_to_bf16_ref(values: np.ndarray) -> np.ndarray:
    """float32 -> the nearest bfloat16, ties to even, as float32; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> 16 & 1)
    quiet_nan = bits | np.uint32(0x00400000)
    return (np.where(np.isnan(values), quiet_nan, rounded) & np.uint32(0xFFFF0000)).view(np.float32)


def linear_float_ref(x: np.ndarray, weight: np.ndarray, rounds_x: bool, rounds_weight: bool = False) -> np.ndarray:
    """y = x @ weight.T: the truth that the kernels are compared with.

    x        [M, K] float32
    weight   [N, K] float32, the values of the stored bytes
    rounds_x, rounds_weight   to bfloat16
    returns  [M, N] float64
    """
    x = round_to_bf16_ref(x) if rounds_x else x
    weight = round_to_bf16_ref(weight) if rounds_weight else weight
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64) @ weight.astype(np.float64).T


def rounding_bound(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Largest loss of float32 against linear_float_ref, [M, N] float64, for x and weight as they are multiplied.

    Each product is rounded by at most 2**-24 of itself, and each of K additions by that much of a partial sum, which is
    no more than the sum of all magnitudes. vdpbf16ps and tdpbf16ps take subnormal inputs and results for zeros
    besides.
    """
    with np.errstate(invalid="ignore"):
        x, weight = np.abs(x.astype(np.float64)), np.abs(weight.astype(np.float64))
    row_size = x.shape[1]
    flushed = row_size * SMALLEST_NORMAL * (1 + x.max(initial=0) + weight.max(initial=0))
    return (row_size + 1) * 2.0**-24 * (x @ weight.T) + flushed
