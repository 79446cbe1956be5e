"""Add, RMS norm and codes in Triton; the maths is in add_rmsnorm.py.

Split    one program a row, or as many short rows as `row_blocks` says.
Program  holds its rows in registers: reads x and the residual once, writes h and the result once.
Edges    past the row zeros are read, which change neither the sum of squares nor the largest magnitude.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.fp8_triton import has_conversion
from gpu_kernels.fused.add_rmsnorm import Operands
from gpu_kernels.fused.row_codes_triton import row_blocks, store_rows
from gpu_kernels.launch import Launch, architecture, run_all


def add_rmsnorm_triton(operands: Operands, y: Tensor, scale: Tensor | None, h: Tensor) -> None:
    """Writes y, scale and h.

    raises  RuntimeError on CPU tensors outside the interpreter
    """
    arch = architecture("add_rmsnorm", y, add_rmsnorm_kernel)
    run_all(launches(operands, y, scale, h, arch), y.device)


def launches(operands: Operands, y: Tensor, scale: Tensor | None, h: Tensor, arch: int) -> list[Launch]:
    x, weight, residual = operands.x, operands.weight, operands.residual
    M, K = x.shape
    rows, block_k, num_warps = row_blocks(K)
    arguments = {
        "x_ptr": x,
        "weight_ptr": weight,
        "residual_ptr": residual,
        "y_ptr": y.view(torch.uint8) if operands.quantize == "fp8" else y,
        "scale_ptr": scale,
        "h_ptr": None if residual is None else h,
        "M": M,
        "K": K,
        "eps": operands.eps,
        "stride_xm": x.stride(0),
        "stride_xk": x.stride(1),
        "stride_w": weight.stride(0),
        "stride_rm": 0 if residual is None else residual.stride(0),
        "stride_rk": 0 if residual is None else residual.stride(1),
        "stride_ym": y.stride(0),
        "stride_hm": h.stride(0),
        "stride_hk": h.stride(1),
        "ROWS": rows,
        "BLOCK_K": block_k,
        "PLUS_ONE": operands.plus_one,
        "QUANTIZE": operands.quantize,
        "HAS_CONVERSION": has_conversion(arch, add_rmsnorm_kernel),
    }
    return [Launch(add_rmsnorm_kernel, (triton.cdiv(M, rows),), arguments, num_warps)]


@triton.jit
def add_rmsnorm_kernel(
    # pointers
    x_ptr,
    weight_ptr,
    residual_ptr,
    y_ptr,
    scale_ptr,
    h_ptr,
    # sizes
    M,
    K,
    eps,
    # strides, in elements; y's rows and scale are dense
    stride_xm,
    stride_xk,
    stride_w,
    stride_rm,
    stride_rk,
    stride_ym,
    stride_hm,
    stride_hk,
    # tile shape
    ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PLUS_ONE: tl.constexpr,
    QUANTIZE: tl.constexpr,
    HAS_CONVERSION: tl.constexpr,
):
    o_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    o_k = tl.arange(0, BLOCK_K).to(tl.int64)
    m_m = o_m < M
    mask = m_m[:, None] & (o_k < K)[None, :]
    # Asked for before the sums wait for all of a row.
    b_w = tl.load(weight_ptr + o_k * stride_w, mask=o_k < K, other=0.0)  # [BLOCK_K]
    b_h = tl.load(x_ptr + o_m[:, None] * stride_xm + o_k[None, :] * stride_xk, mask=mask, other=0.0)
    if residual_ptr is not None:
        p_residual = residual_ptr + o_m[:, None] * stride_rm + o_k[None, :] * stride_rk
        b_residual = tl.load(p_residual, mask=mask, other=0.0)  # [ROWS, BLOCK_K]
        b_h = (b_h.to(tl.float32) + b_residual.to(tl.float32)).to(x_ptr.dtype.element_ty)
        tl.store(h_ptr + o_m[:, None] * stride_hm + o_k[None, :] * stride_hk, b_h, mask=mask)
    b_h = b_h.to(tl.float32)  # [ROWS, BLOCK_K]
    b_mean = tl.sum(b_h * b_h, axis=1) / K  # [ROWS]
    b_w = b_w.to(tl.float32) + (1.0 if PLUS_ONE else 0.0)
    # Past the row b_h is 0, and so is y whatever the weight.
    b_y = b_h * tl.rsqrt(b_mean + eps)[:, None] * b_w[None, :]
    store_rows(b_y, y_ptr, scale_ptr, o_m, o_k, m_m, mask, stride_ym, QUANTIZE, HAS_CONVERSION)
