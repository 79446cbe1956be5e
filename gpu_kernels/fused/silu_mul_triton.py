"""SiLU times up, and codes, in Triton; the maths is in silu_mul.py.

Split    with codes one program a row, or as many short rows as `row_blocks` says; without, blocks of at most 4096
         features of a row, so that a few tokens' rows fill the GPU too.
Program  reads gate and up once, writes the result once.
Edges    past the row zeros are read, whose product is 0.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.fp8_triton import has_conversion
from gpu_kernels.fused.row_codes_triton import row_blocks, store_rows
from gpu_kernels.fused.silu_mul import Operands
from gpu_kernels.launch import Launch, architecture, run_all

# With codes there is more to do per feature: measured on an H200, 16 warps of 32 features are faster than 32 of 16.
CODED_FEATURES = 32
MAX_BLOCK_K = 4096  # 16 features a thread of 8 warps: two 16-byte loads from gate and from up are in flight


def silu_mul_triton(operands: Operands, y: Tensor, scale: Tensor | None) -> None:
    """Writes y and scale.

    raises  RuntimeError on CPU tensors outside the interpreter
    """
    arch = architecture("silu_mul", y, silu_mul_kernel)
    run_all(launches(operands, y, scale, arch), y.device)


def launches(operands: Operands, y: Tensor, scale: Tensor | None, arch: int) -> list[Launch]:
    gate, up, quantize = operands.gate, operands.up, operands.quantize
    M, K = gate.shape
    rows, block_k, num_warps = row_blocks(K, CODED_FEATURES) if quantize else row_blocks(min(K, MAX_BLOCK_K))
    arguments = {
        "gate_ptr": gate,
        "up_ptr": up,
        "y_ptr": y.view(torch.uint8) if quantize == "fp8" else y,
        "scale_ptr": scale,
        "M": M,
        "K": K,
        "stride_gm": gate.stride(0),
        "stride_gk": gate.stride(1),
        "stride_um": up.stride(0),
        "stride_uk": up.stride(1),
        "stride_ym": y.stride(0),
        "ROWS": rows,
        "BLOCK_K": block_k,
        "QUANTIZE": quantize,
        "HAS_CONVERSION": has_conversion(arch, silu_mul_kernel),
    }
    grid = (triton.cdiv(M, rows), triton.cdiv(K, block_k))
    return [Launch(silu_mul_kernel, grid, arguments, num_warps)]


@triton.jit
def silu_mul_kernel(
    # pointers
    gate_ptr,
    up_ptr,
    y_ptr,
    scale_ptr,
    # sizes
    M,
    K,
    # strides, in elements; y's rows and scale are dense
    stride_gm,
    stride_gk,
    stride_um,
    stride_uk,
    stride_ym,
    # tile shape
    ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    QUANTIZE: tl.constexpr,
    HAS_CONVERSION: tl.constexpr,
):
    o_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    o_k = tl.program_id(1).to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    m_m = o_m < M
    mask = m_m[:, None] & (o_k < K)[None, :]
    b_gate = tl.load(gate_ptr + o_m[:, None] * stride_gm + o_k[None, :] * stride_gk, mask=mask, other=0.0)
    b_up = tl.load(up_ptr + o_m[:, None] * stride_um + o_k[None, :] * stride_uk, mask=mask, other=0.0)
    b_gate, b_up = b_gate.to(tl.float32), b_up.to(tl.float32)  # [ROWS, BLOCK_K]
    b_y = b_gate / (1.0 + tl.exp(-b_gate)) * b_up
    store_rows(b_y, y_ptr, scale_ptr, o_m, o_k, m_m, mask, stride_ym, QUANTIZE, HAS_CONVERSION)
