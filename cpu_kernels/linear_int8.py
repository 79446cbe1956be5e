"""Linear layers with int8 weights and int8 activations: the definition of their arithmetic.

W8A8
    x_scale[m]  =  max(absmax / 127, 2**-126)           of the token, or of all tokens of the call, or fixed
    x_q[m, k]   =  x[m, k] / x_scale[m] in float32, to the nearest integer, ties to even, clamped to [-128, 127]
    y[m, n]     =  (sum over k of x_q[m, k] * w_q[n, k]) * w_scale[n] * x_scale[m]

The sum is exact: |sum| <= 2**14 * K is an int32 up to K = 131071, the largest that is taken. It is then rounded to
float32 and multiplied twice, in this order, so that all kernels give the same bits. A token with NaN has the scale NaN,
one with infinity the scale inf and codes of 0: NaN either way. A fixed scale clips infinity, as it does all that is too
large.

LLM.int8(), with its roundings in the order of bitsandbytes
    half        =  x rounded to float16, 0 in the features that are known as outliers
    outliers    =  entries with |half| >= 6; features with one in any token of the call are the call's outliers
    absmax[m]   =  of the entries of half that are no outliers themselves
    x_q[m, k]   =  half * (1 / absmax * 127), to the nearest integer, ties to even; 0 in outlier features
    y[m, n]     =  (sum of x_q * w_q) * (absmax[m] * w_absmax[n]) * 6.200124e-05
                   + sum over outlier features of x[m, k] * (w_q[n, k] * w_absmax[n] / 127)
                   + sum over known features of x[m, k] * outlier_weight[n, k]
"""

import numpy as np

MAX_ROW_SIZE = (2**31 - 1) // 2**14
SMALLEST_SCALE = np.float32(2.0**-126)  # smallest normal float32: zeros divide safely by it
OUTLIER_THRESHOLD = 6.0
PER_CODE = np.float32(1 / 127)
PER_PRODUCT = np.float32(6.200124e-05)  # 1 / 127**2 with the digits that bitsandbytes has


def quantize_tokens_ref(x: np.ndarray, scale: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """int8 codes and float32 scales of activations.

    x        [M, K] float32
    scale    [M, 1] or [1, 1] float32; None: absmax / 127 of each token
    returns  codes [M, K] int8; scale [M, 1] float32, NaN for a token with NaN
    """
    absmax = np.abs(x).max(axis=1, keepdims=True, initial=0)  # NaN wins
    if scale is None:
        scale = np.maximum(absmax / np.float32(127), SMALLEST_SCALE)
    scale = np.where(np.isnan(absmax), np.float32(np.nan), scale).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        codes = np.clip(np.rint(x / scale), -128, 127)
    return np.nan_to_num(codes, nan=0).astype(np.int8), scale


def linear_w8a8_ref(x: np.ndarray, weight: np.ndarray, weight_scale: np.ndarray, scale=None) -> np.ndarray:
    """y = x @ weight.T with x rounded to int8: the result of every kernel, bit for bit.

    x             [M, K] float32
    weight        [N, K] int8
    weight_scale  [N, 1] float32
    scale         of x, as quantize_tokens_ref takes it
    returns       [M, N] float32
    """
    codes, x_scale = quantize_tokens_ref(x, scale)
    exact = codes.astype(np.int64) @ weight.astype(np.int64).T
    with np.errstate(invalid="ignore", over="ignore"):
        return exact.astype(np.float32) * weight_scale.T * x_scale


def linear_llm_int8_ref(
    x: np.ndarray, weight: np.ndarray, absmax: np.ndarray, outlier_weight: np.ndarray, known: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """y = x @ weight.T in its two parts.

    x               [M, K] float32, all tokens of a call
    weight, absmax  [N, K] int8, [N] float32
    outlier_weight  [N, F] float16, of the features `known` [F]
    returns         [M, N] float64, and the largest loss of float32: the int8 part is rounded four times; of the
                    outliers' F products each is rounded up to three times and added once, the two parts once more,
                    by at most 2**-24 of the sum of all magnitudes each.
    """
    with np.errstate(over="ignore"):
        half = x.astype(np.float16).astype(np.float32)
    half[:, known] = 0
    outliers = np.abs(half) >= OUTLIER_THRESHOLD
    features = np.flatnonzero(outliers.any(axis=0))
    inliers = np.where(outliers, np.float32(0), half)
    x_absmax = np.abs(inliers).max(axis=1, keepdims=True, initial=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.nan_to_num(np.rint(inliers * (np.float32(1) / x_absmax * np.float32(127))), nan=0)
    codes[:, features] = 0
    exact = codes.astype(np.int64) @ weight.astype(np.int64).T
    y = exact * (x_absmax * absmax).astype(np.float64) * np.float64(PER_PRODUCT)
    columns = np.concatenate([weight[:, features] * (absmax[:, None] * np.float64(PER_CODE)), outlier_weight], axis=1)
    seen = x[:, np.concatenate([features, known]).astype(np.int64)].astype(np.float64)
    magnitudes = np.abs(y) + np.abs(seen) @ np.abs(columns).T
    return y + seen @ columns.T, (columns.shape[1] + 5) * 2.0**-24 * magnitudes
