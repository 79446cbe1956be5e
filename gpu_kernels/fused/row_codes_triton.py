"""Codes of whole rows in registers, one scale per row: the end of a fused step; the maths is in row_codes.py."""

# Kernel bodies are Triton's language, whose stubs are wrong about operators on tensors and constexpr and literals
# that are declared constexpr.
# pyright: reportOperatorIssue=false, reportAssignmentType=false
import triton
import triton.language as tl

from gpu_kernels.fp8_triton import e4m3_codes

# 16 features a thread: two 16-byte loads of bfloat16 from each input are in flight.
FEATURES_PER_THREAD = 16
MIN_BLOCK = 16
MIN_FEATURES = 2048  # a program of fewer is launched in more time than it runs: short rows share one


@triton.jit
def divided(b_y, b_by, COMPILED: tl.constexpr):
    """b_y / b_by rounded to nearest, for b_by from 2**-126 on.

    COMPILED  False under the interpreter, whose fma rounds twice. The compiler's division is these instructions and a
              branch per element; one reciprocal serves a row. Two residuals make the quotient the nearest, as in CUDA's
              division; below 2**-64 both are lifted, so that no residual is lost under float32's normal numbers.
    """
    if COMPILED:
        b_lift = tl.where(b_by < 5.421010862427522e-20, 18446744073709551616.0, 1.0)  # 2**-64, 2**64
        b_y, b_by = b_y * b_lift, b_by * b_lift
        b_inverse = tl.div_rn(1.0, b_by)
        b_q = b_y * b_inverse
        b_q = tl.fma(tl.fma(-b_by, b_q, b_y), b_inverse, b_q)
        return tl.fma(tl.fma(-b_by, b_q, b_y), b_inverse, b_q)
    else:
        return tl.div_rn(b_y, b_by)


@triton.jit
def int8_codes(b_q):
    """int8 of the nearest integers, halves to even; b_q from -128 to 127."""
    # At 1.5 * 2**23 a float32 step is 1: adding it rounds to an integer, which is in the last bits then.
    return (b_q + 12582912.0).to(tl.int32, bitcast=True).to(tl.int8)


@triton.jit
def row_codes(b_y, QUANTIZE: tl.constexpr, HAS_CONVERSION: tl.constexpr):
    """(codes int8 or uint8 [ROWS, BLOCK_K], scale float32 [ROWS]) of b_y [ROWS, BLOCK_K] float32, 0 past the row."""
    # A maximum of floats may drop NaN. As integers their bits are in the same order, with inf and then NaN at the end.
    b_bits = tl.max(b_y.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)  # [ROWS]
    b_absmax = tl.cast(b_bits, tl.float32, bitcast=True)
    m_finite = b_absmax < float("inf")
    largest: tl.constexpr = 127.0 if QUANTIZE == "int8" else 448.0
    b_scale = tl.maximum(tl.div_rn(b_absmax, largest), 1.1754943508222875e-38)  # 2**-126
    b_q = tl.where(m_finite[:, None], divided(b_y, b_scale[:, None], HAS_CONVERSION), 0.0)
    b_scale = tl.where(m_finite, b_scale, float("nan"))
    if QUANTIZE == "int8":
        b_codes = int8_codes(b_q)
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


def row_blocks(num_features: int, per_thread: int = FEATURES_PER_THREAD) -> tuple[int, int, int]:
    """(rows per program, block of features, warps) for rows of so many features, 32,768 at most.

    Longer rows than 16,384 have 32 features in each of 1,024 threads, which leaves 64 registers: enough for two rows.
    """
    block = max(MIN_BLOCK, triton.next_power_of_2(num_features))
    rows = max(1, MIN_FEATURES // block)
    warps = rows * block // (32 * per_thread)
    return rows, block, min(32, max(4, warps))
