"""Per-token quantization in Triton; the maths is in row_codes.py.

Split    one program a row.
Program  reads the row twice in steps of BLOCK_K: for the absmax, then (now out of the cache) for the codes.
"""

# Kernel bodies are Triton's language, whose stubs are wrong about operators on tensors and constexpr.
# pyright: reportOperatorIssue=false
import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.fp8_triton import e4m3_codes, has_conversion
from gpu_kernels.fused.row_codes import QMAX
from gpu_kernels.fused.row_codes_triton import divided, int8_codes
from gpu_kernels.launch import Launch, architecture

# 4096 features over 8 warps are 16 per thread: two 16-byte loads of bfloat16, one 16-byte store of codes.
MAX_BLOCK_K = 4096
NUM_WARPS = 8


def quantize_per_token_triton(x: Tensor, x_q: Tensor, x_scale: Tensor) -> None:
    """Writes x_q [M, K] int8 or e4m3 and x_scale [M] float32 (shapes and dtypes as checked in quantize_per_token).

    raises  RuntimeError on CPU tensors outside the interpreter
    """
    arch = architecture("quantize_per_token", x, quantize_per_token_kernel)
    quantize_per_token_launch(x, x_q, x_scale, arch).run(x.device)


def quantize_per_token_launch(x: Tensor, x_q: Tensor, x_scale: Tensor, arch: int) -> Launch:
    """One program per row of x."""
    M, K = x.shape
    codes = "int8" if x_q.dtype == torch.int8 else "fp8"
    arguments = {
        "x_ptr": x,
        "x_q_ptr": x_q if codes == "int8" else x_q.view(torch.uint8),
        "x_scale_ptr": x_scale,
        "K": K,
        "stride_xm": x.stride(0),
        "stride_xk": x.stride(1),
        "stride_qm": x_q.stride(0),
        "stride_qk": x_q.stride(1),
        "stride_s": x_scale.stride(0),
        "BLOCK_K": min(MAX_BLOCK_K, triton.next_power_of_2(max(K, 1))),
        "QMAX": QMAX[codes],
        "CODES": codes,
        "COMPILED": isinstance(quantize_per_token_kernel, triton.JITFunction),
        "HAS_CONVERSION": has_conversion(arch, quantize_per_token_kernel),
    }
    return Launch(quantize_per_token_kernel, (M,), arguments, NUM_WARPS)


@triton.jit
def quantize_per_token_kernel(
    # pointers
    x_ptr,
    x_q_ptr,
    x_scale_ptr,
    # sizes
    K,
    # strides, in elements
    stride_xm,
    stride_xk,
    stride_qm,
    stride_qk,
    stride_s,
    # tile shape
    BLOCK_K: tl.constexpr,
    # codes
    QMAX: tl.constexpr,
    CODES: tl.constexpr,
    COMPILED: tl.constexpr,
    HAS_CONVERSION: tl.constexpr,
):
    i_m = tl.program_id(0).to(tl.int64)
    o_k = tl.arange(0, BLOCK_K).to(tl.int64)
    p_x = x_ptr + i_m * stride_xm
    p_q = x_q_ptr + i_m * stride_qm
    inf = float("inf")

    b_absmax = tl.zeros((BLOCK_K,), dtype=tl.float32)
    for i_k in range(0, K, BLOCK_K):
        b_x = tl.load(p_x + (i_k + o_k) * stride_xk, mask=i_k + o_k < K, other=0.0).to(tl.float32)  # [BLOCK_K]
        # A maximum may drop NaN; inf survives it and marks the row just as well.
        b_absmax = tl.maximum(b_absmax, tl.where(b_x == b_x, tl.abs(b_x), inf))
    absmax = tl.max(b_absmax, axis=0)
    is_finite = absmax < inf
    # Division rounded to nearest (`/` need not be), so that codes equal the oracle's.
    scale = tl.maximum(tl.div_rn(absmax, QMAX), 1.1754943508222875e-38)  # 2**-126
    tl.store(x_scale_ptr + i_m * stride_s, tl.where(is_finite, scale, float("nan")))

    for i_k in range(0, K, BLOCK_K):
        m_k = i_k + o_k < K
        b_x = tl.load(p_x + (i_k + o_k) * stride_xk, mask=m_k, other=0.0).to(tl.float32)  # [BLOCK_K]
        b_q = tl.where(is_finite, divided(b_x, scale, COMPILED), 0.0)
        if CODES == "int8":
            b_codes = int8_codes(b_q)
        else:
            b_codes = e4m3_codes(b_q, HAS_CONVERSION)
        tl.store(p_q + (i_k + o_k) * stride_qk, b_codes, mask=m_k)
