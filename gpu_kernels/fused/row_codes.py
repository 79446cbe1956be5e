"""Codes with one scale per row (token), as int8 or FP8 e4m3: the end of fused steps before a product.

    scale[m] = max(absmax_k |y[m, k]| / QMAX, 2**-126)       QMAX = 127, or 448, the largest e4m3
    q[m, k]  = y[m, k] / scale[m], rounded to nearest, halves to even             y ~= scale * q

A row that holds NaN or inf has no such scale: scale is NaN there and q is 0.
"""

import torch
from torch import Tensor

QMAX = {"int8": 127.0, "fp8": 448.0}
CODE_DTYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
SMALLEST_SCALE = 2.0**-126


def check_quantize(op: str, quantize: str | None) -> None:
    if quantize is not None and quantize not in QMAX:
        raise NotImplementedError(f"{op}: got quantize {quantize!r}, expected None or one of {list(QMAX)}")


def row_dtype(dtype: torch.dtype, quantize: str | None) -> torch.dtype:
    """The type of y: the codes', or `dtype` if nothing is quantized."""
    return dtype if quantize is None else CODE_DTYPES[quantize]


def empty_rows(x: Tensor, quantize: str | None) -> tuple[Tensor, Tensor | None]:
    """(y [M, K] in x's type or its codes, scale [M] float32 if quantized), to be written, for x [M, K]"""
    y = torch.empty(x.shape, dtype=row_dtype(x.dtype, quantize), device=x.device)
    return y, torch.empty(x.shape[0], device=x.device) if quantize else None


def write_rows(exact: Tensor, quantize: str | None, y: Tensor, scale: Tensor | None) -> None:
    """Writes `exact` [M, K], rounded, into y, or its codes and their scale."""
    if quantize is None:
        y.copy_(exact)
        return
    assert scale is not None  # `empty_rows` gives one with codes
    codes, row_scale = row_codes_ref(exact.float(), quantize)
    y.copy_(codes)
    scale.copy_(row_scale)


def row_codes_ref(y: Tensor, quantize: str) -> tuple[Tensor, Tensor]:
    """(q [M, K], scale [M] in y's own type): the oracle. y [M, K] float32 or float64"""
    if y.shape[1] == 0:
        return y.to(CODE_DTYPES[quantize]), y.new_full((y.shape[0],), SMALLEST_SCALE)
    absmax = y.abs().amax(dim=1)  # [M]
    largest = torch.full_like(absmax, QMAX[quantize])  # by a tensor: by a number, a GPU multiplies by its reciprocal
    scale = (absmax / largest).clamp(min=SMALLEST_SCALE).where(absmax.isfinite(), torch.nan)
    q = (y / scale[:, None]).nan_to_num(nan=0.0)  # [M, K]
    q = q.round() if quantize == "int8" else q.float().clamp(-QMAX["fp8"], QMAX["fp8"])
    return q.to(CODE_DTYPES[quantize]), scale


def codes_agree(q: Tensor, scale: Tensor, y: Tensor, y_error: Tensor, quantize: str) -> bool:
    """q and scale are codes of something within y_error of y.

    The largest of a row moves by as much as its elements: scale is within max(y_error) / QMAX, and two roundings, of
    y's own. The value of a code differs by at most half of one step more than y_error: half of scale for int8; for e4m3
    2**-4 of the value, or half of scale * 2**-9 near zero. Dividing rounds once more: 2**-22 of y covers it, and the
    scale's.

    y        [M, K] float64, the quantized values; y_error [M, K] float64, how far the kernel's may be
    returns  whether all of it holds, and rows that are not finite have scale NaN and codes 0
    """
    finite = y.isfinite().all(dim=1)
    if not scale[~finite].isnan().all() or q[~finite].float().count_nonzero():
        return False
    q, scale, y, y_error = q[finite].double(), scale[finite].double(), y[finite], y_error[finite]
    if not y.numel():
        return True
    _, expected = row_codes_ref(y, quantize)
    if ((scale - expected).abs() > y_error.amax(dim=1) / QMAX[quantize] + 2 * 2**-24 * expected).any():
        return False
    half_of_smallest = scale[:, None] * 2**-10 + 0 * y
    half_step = scale[:, None] / 2 if quantize == "int8" else torch.maximum(y.abs() * 2**-4, half_of_smallest)
    return bool(((q * scale[:, None] - y).abs() <= half_step + 2 * y_error + 2**-22 * y.abs()).all())
