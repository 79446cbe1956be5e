"""Codes of whole rows in registers, one scale per row: the end of a fused step; the maths is in row_codes.py."""

# Kernel bodies are Triton's language, whose stubs are wrong about operators on tensors and constexpr and literals
# that are declared constexpr.
# pyright: reportOperatorIssue=false, reportAssignmentType=false
import triton
import triton.language as tl

from gpu_kernels.fp8_triton import e4m3_codes


@triton.jit
def row_codes(b_y, QUANTIZE: tl.constexpr, HAS_CONVERSION: tl.constexpr):
    """(codes int8 or uint8 [ROWS, BLOCK_K], scale float32 [ROWS]) of b_y [ROWS, BLOCK_K] float32, 0 past the row."""
    inf = float("inf")
    # A maximum may drop NaN; inf survives it and marks the row just as well.
    b_absmax = tl.max(tl.where(b_y == b_y, tl.abs(b_y), inf), axis=1)  # [ROWS]
    m_finite = b_absmax < inf
    largest: tl.constexpr = 127.0 if QUANTIZE == "int8" else 448.0
    b_scale = tl.maximum(tl.div_rn(b_absmax, largest), 1.1754943508222875e-38)  # 2**-126
    b_q = tl.where(m_finite[:, None], tl.div_rn(b_y, b_scale[:, None]), 0.0)
    b_scale = tl.where(m_finite, b_scale, float("nan"))
    if QUANTIZE == "int8":
        # At 1.5 * 2**23 a float32 step is 1: adding it rounds to an integer, halves to even.
        b_codes = (b_q + 12582912.0 - 12582912.0).to(tl.int8)
    else:
        b_codes = e4m3_codes(b_q, HAS_CONVERSION)
    return b_codes, b_scale


@triton.jit
def store_rows(
    b_y, y_ptr, scale_ptr, o_m, o_k, m_m, mask, stride_ym, QUANTIZE: tl.constexpr, HAS_CONVERSION: tl.constexpr
):
    """b_y [ROWS, BLOCK_K] float32 in y's type, or its codes and their scale [ROWS]; y's rows and scale are dense."""
    p_y = y_ptr + o_m[:, None] * stride_ym + o_k[None, :]
    if QUANTIZE is None:
        tl.store(p_y, b_y.to(y_ptr.dtype.element_ty), mask=mask)
    else:
        b_q, b_scale = row_codes(b_y, QUANTIZE, HAS_CONVERSION)
        tl.store(p_y, b_q, mask=mask)
        tl.store(scale_ptr + o_m, b_scale, mask=m_m)
