"""The FP8 product in Triton; the maths is in fp8_gemm.py.

Split    one program a [BLOCK_M, BLOCK_N] tile of y, or of few tokens one of NUM_SPLITS shares of its input features.
Program  walks K in steps of 128 features, a block of scales: FP8 tiles into the tensor cores, whose sum of a step is
         added in float32 registers, scaled where there are blocks.
sm_80    has no FP8: codes come as bytes and become float16, which holds each exactly, for 16-bit products. No weight
         is read twice for it, so few tokens lose little; many run at the 16-bit rate, and more exactly than on sm_90.
Edges    rows past M or N read the last real row, whose results are never stored. Columns past K are masked.
"""

import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.chosen import chosen
from gpu_kernels.fp8_triton import readable, widen
from gpu_kernels.launch import Launch, architecture
from gpu_kernels.products.code_launch import code_launch
from gpu_kernels.products.fp8_gemm import BLOCK
from gpu_kernels.products.split_k import Workspace
from gpu_kernels.products.tiles_triton import leave_part, sum_of_parts, tile_of
from gpu_kernels.products.w8a8_gemm_configs import Config
from gpu_kernels.products.w8a8_gemm_triton import scaled, steps_of, store_rows

# Rows (largest M, candidates, the one to use first). Few tokens: the rate is the memory's, so narrow tiles, as many
# programs as N gives, or two a multiprocessor where that is more, and deep pipelines: 8 stages of 32 rows are 32 KB on
# their way, where 23 are needed on each multiprocessor. Many tokens: a tile's sum and its step's sum take 64 registers
# each over 256 threads; with 128 x 256 they spill.
ROWS = [
    (16, [Config(16, 32, BLOCK, 1, 4, 8, 2), Config(16, 64, BLOCK, 1, 4, 6, 2)]),
    (64, [Config(64, 32, BLOCK, 8, 4, 6), Config(64, 64, BLOCK, 8, 4, 5)]),
    (None, [Config(128, 128, BLOCK, 8, 8, 4), Config(64, 128, BLOCK, 8, 4, 4)]),
]
# Floats made of the codes take registers too: half of a tile's columns, or fewer.
ROWS_80 = [
    (16, [Config(16, 32, BLOCK, 1, 4, 8, 2)]),
    (64, [Config(64, 32, BLOCK, 8, 4, 5)]),
    (None, [Config(128, 64, BLOCK, 8, 8, 3)]),
]
CONFIGS = {80: ROWS_80, 90: ROWS, 100: ROWS}


def candidates(arch: int, num_tokens: int) -> list[Config]:
    """The row of CONFIGS for an architecture and M, the configuration to use first.

    raises  NotImplementedError if the architecture has no rows
    """
    return _row(arch, num_tokens)[1]


def row_name(arch: int, num_tokens: int) -> str:
    largest = _row(arch, num_tokens)[0]
    return "any M" if largest is None else f"M<={largest}"


def _row(arch: int, num_tokens: int) -> tuple[int | None, list[Config]]:
    if arch not in CONFIGS:
        raise NotImplementedError(f"fp8_gemm: got sm_{arch}, expected one of {[f'sm_{known}' for known in CONFIGS]}")
    return next(row for row in CONFIGS[arch] if row[0] is None or num_tokens <= row[0])


def fp8_gemm_triton(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    y: Tensor,
    workspace: Workspace | None = None,
    config: Config | None = None,
) -> None:
    """Writes y [M, N] (shapes and dtypes as checked in fp8_gemm), with the tile shape the table has for it.

    x_scale, weight_scale  [M] and [N], or both of blocks
    raises  RuntimeError on CPU tensors outside the interpreter; NotImplementedError on an unknown architecture
    """
    arch = architecture("fp8_gemm", x_q, fp8_gemm_kernel)
    config = config or chosen("fp8_gemm", row_name(arch, len(x_q)), candidates(arch, len(x_q)), x_q.device)
    fp8_gemm_launch(x_q, x_scale, weight_q, weight_scale, bias, y, workspace, config, arch).run(y.device)


def fp8_gemm_launch(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    y: Tensor,
    workspace: Workspace | None,
    config: Config,
    arch: int,
) -> Launch:
    """One program a share of a [block_m, block_n] tile of y."""
    x_q, weight_q = readable(x_q, arch), readable(weight_q, arch)
    grid, arguments = code_launch(x_q, x_scale, weight_q, weight_scale, bias, y, workspace, config, arch)
    has_blocks = weight_scale.dim() == 2
    arguments |= {
        "stride_qb": x_scale.stride(1) if has_blocks else 0,
        "stride_wb": weight_scale.stride(1) if has_blocks else 0,
        "HAS_BLOCKS": has_blocks,
    }
    return Launch(fp8_gemm_kernel, grid, arguments, config.num_warps, config.num_stages)


@triton.jit
def fp8_gemm_kernel(
    # pointers; codes are e4m3, or bytes where the GPU cannot convert them
    x_q_ptr,
    x_scale_ptr,
    weight_q_ptr,
    weight_scale_ptr,
    bias_ptr,
    y_ptr,
    partial_ptr,
    arrived_ptr,
    # sizes
    M,
    N,
    K,
    steps_per_split,
    # strides, in elements
    stride_qm,
    stride_qk,
    stride_qs,
    stride_qb,
    stride_wn,
    stride_wk,
    stride_ws,
    stride_wb,
    stride_b,
    stride_ym,
    stride_yn,
    # tile shape
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    HAS_BLOCKS: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    i_tile, i_split = tl.program_id(0), tl.program_id(1)
    i_m, i_n = tile_of(i_tile, N, M, BLOCK_N, BLOCK_M, GROUP_M)
    first, last = steps_of(i_split, K, steps_per_split, BLOCK_K, NUM_SPLITS)
    o_m = i_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = i_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    o_k = first * BLOCK_K + tl.arange(0, BLOCK_K).to(tl.int64)
    o_x, o_w = tl.minimum(o_m, M - 1), tl.minimum(o_n, N - 1)
    p_x = x_q_ptr + o_x[:, None] * stride_qm + o_k[None, :] * stride_qk
    p_w = weight_q_ptr + o_w[None, :] * stride_wn + o_k[:, None] * stride_wk
    step = tl.full((), BLOCK_K, tl.int64)
    IS_BYTES: tl.constexpr = x_q_ptr.dtype.element_ty == tl.uint8
    ZERO: tl.constexpr = 0 if IS_BYTES else 0.0

    b_acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i_k in range(first, last):
        if EVEN_K:
            b_x = tl.load(p_x)  # [BLOCK_M, BLOCK_K]
            b_w = tl.load(p_w)  # [BLOCK_K, BLOCK_N]
        else:
            m_k = i_k * BLOCK_K + tl.arange(0, BLOCK_K) < K
            b_x = tl.load(p_x, mask=m_k[None, :], other=ZERO)  # [BLOCK_M, BLOCK_K]
            b_w = tl.load(p_w, mask=m_k[:, None], other=ZERO)  # [BLOCK_K, BLOCK_N]
        if IS_BYTES:
            b_x, b_w = widen(b_x, "e4m3", tl.float16), widen(b_w, "e4m3", tl.float16)
        b_sum = tl.dot(b_x, b_w)
        if HAS_BLOCKS:
            b_x_scale = tl.load(x_scale_ptr + o_x * stride_qs + i_k * stride_qb)  # [BLOCK_M]
            b_w_scale = tl.load(weight_scale_ptr + o_w // BLOCK_K * stride_ws + i_k * stride_wb)  # [BLOCK_N]
            b_sum = b_sum * b_x_scale[:, None] * b_w_scale[None, :]
        b_acc += b_sum
        p_x += step * stride_qk
        p_w += step * stride_wk

    if NUM_SPLITS > 1:
        m_tile = (o_m < M)[:, None] & (o_n < N)[None, :]
        if leave_part(b_acc, partial_ptr, arrived_ptr, m_tile, i_tile, i_split, NUM_SPLITS) < NUM_SPLITS - 1:
            return
        b_acc = sum_of_parts(b_acc, partial_ptr, arrived_ptr, m_tile, i_tile, NUM_SPLITS)
    if not HAS_BLOCKS:
        b_acc = scaled(b_acc, x_scale_ptr, weight_scale_ptr, o_m, o_n, M, N, stride_qs, stride_ws)
    store_rows(b_acc, bias_ptr, y_ptr, o_m, o_n, M, N, stride_b, stride_ym, stride_yn)
