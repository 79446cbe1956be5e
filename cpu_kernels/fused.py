"""The steps of a decoder layer between its products: the definition of the arithmetic.

    rms_norm    x * (1 / sqrt(sum(x^2) / K + eps)) * weight            Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4
    silu_mul    gate / (1 + e^-gate) * up                              Shazeer 2020, arXiv:2002.05202, eq. 6 (SwiGLU)

Everything is float32, one rounding an operation, nothing fused, in the order written here; so every instruction set
comes to these bits:
    sum(x^2)    64 sums side by side, the i-th of the squares at k = i, i + 64, i + 128 ...; then the upper half of the
                sums is added to the lower, until one is left
    e^t         2^n * p(r) with n = round(t / ln 2), r = t - n * ln 2 (ln 2 in two parts, the first of 16 bits) and p
                the series of e^r up to r^7 / 7!; t is held within -104 and 104, at which e^t is 0 next to 1, or
                infinite
NaN and infinity propagate as they do in torch.
"""

import numpy as np

from cpu_kernels._ext import rms_norm_rows, silu_mul_rows

NUM_SUMS = 64
INVERSE_LN2 = np.float32(float.fromhex("0x1.715476p+0"))
LN2_HIGH, LN2_LOW = np.float32(float.fromhex("0x1.62e4p-1")), np.float32(float.fromhex("0x1.7f7d1cp-20"))
SERIES = [np.float32(1) / np.float32(factorial) for factorial in (5040, 720, 120, 24, 6, 2, 1, 1)]
LARGEST_EXPONENT = np.float32(104)


def rms_norm(
    x: np.ndarray, weight: np.ndarray, eps: float, *, isa: str | None = None, out: np.ndarray | None = None
) -> np.ndarray:
    """rms_norm_ref.

    x        [M, K] float32, each row contiguous
    weight   [K] float32
    isa      implementation by name; None: the best, at most QBENCH_ISA
    out      [M, K] float32, contiguous, written and returned, may be x; None: a new array
    raises   ValueError (shape, strides), TypeError (dtype), RuntimeError (isa not on this machine)
    """
    return rms_norm_rows(x, weight, eps, isa, out)[0]


def silu_mul(gate: np.ndarray, up: np.ndarray, *, isa: str | None = None, out: np.ndarray | None = None) -> np.ndarray:
    """silu_mul_ref.

    gate, up            [M, K] float32, each row contiguous
    isa, out, raises    as for rms_norm; out may be gate or up
    """
    return silu_mul_rows(gate, up, isa, out)[0]


def rms_norm_ref(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x [M, K] float32, weight [K] float32 -> [M, K] float32"""
    num_tokens, row_size = x.shape
    padded = np.zeros((num_tokens, -(-row_size // NUM_SUMS) * NUM_SUMS), np.float32)
    padded[:, :row_size] = x
    sums = np.zeros((num_tokens, NUM_SUMS), np.float32)
    with np.errstate(all="ignore"):
        for step in padded.reshape(num_tokens, -1, NUM_SUMS).swapaxes(0, 1):
            sums = sums + step * step
        while sums.shape[1] > 1:
            half = sums.shape[1] // 2
            sums = sums[:, :half] + sums[:, half:]
        inverse = np.float32(1) / np.sqrt(sums / np.float32(row_size) + np.float32(eps))  # [M, 1]
        return x * inverse * weight


def silu_mul_ref(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """gate, up [M, K] float32 -> [M, K] float32"""
    with np.errstate(all="ignore"):
        return gate / (np.float32(1) + exponential_ref(-gate)) * up


def exponential_ref(t: np.ndarray) -> np.ndarray:
    """e^t as silu_mul has it: float32 -> float32"""
    with np.errstate(all="ignore"):
        t = np.clip(t, -LARGEST_EXPONENT, LARGEST_EXPONENT)  # NaN stays
        n = np.nan_to_num(np.rint(t * INVERSE_LN2))
        r = (t - n * LN2_HIGH) - n * LN2_LOW
        power = np.full_like(r, SERIES[0])
        for coefficient in SERIES[1:]:
            power = power * r + coefficient
        return np.ldexp(power, n.astype(np.int32))
