"""The W8A8 product in Triton; the maths is in w8a8_gemm.py.

Split    one program a [BLOCK_M, BLOCK_N] tile of y, or of few tokens one of NUM_SPLITS shares of its input features;
         their parts are int32, so that the sum is the same to the bit.
Program  walks K in steps of BLOCK_K, int8 tiles into the tensor cores, int32 accumulators in registers;
         then multiplies by the row's and the column's scale in float32, adds the bias, rounds, stores.
Order    tiles go down GROUP_M rows before the next column, so that programs that run together share
         both their rows of x_q and their rows of weight_q in the L2.
Edges    rows past M or N read the last real row, whose results are never stored: the loop needs no mask for them.
         Columns past K are masked, in the variant that K % BLOCK_K != 0 calls for.
"""

import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.chosen import chosen
from gpu_kernels.launch import Launch, architecture
from gpu_kernels.products.code_launch import code_launch
from gpu_kernels.products.split_k import Workspace
from gpu_kernels.products.tiles_triton import leave_part, sum_of_parts, tile_of
from gpu_kernels.products.w8a8_gemm_configs import Config, candidates, row_name


def w8a8_gemm_triton(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    y: Tensor,
    workspace: Workspace | None = None,
    config: Config | None = None,
) -> None:
    """Writes y [M, N] (shapes and dtypes as checked in w8a8_gemm), with the tile shape the table has for it.

    raises  RuntimeError on CPU tensors outside the interpreter; NotImplementedError on an unknown architecture
    """
    arch = architecture("w8a8_gemm", x_q, w8a8_gemm_kernel)
    M = x_q.shape[0]
    config = config or chosen("w8a8_gemm", row_name(arch, M), candidates(arch, M), x_q.device)
    w8a8_gemm_launch(x_q, x_scale, weight_q, weight_scale, bias, y, workspace, config, arch).run(y.device)


def w8a8_gemm_launch(
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
    grid, arguments = code_launch(x_q, x_scale, weight_q, weight_scale, bias, y, workspace, config, arch)
    return Launch(w8a8_gemm_kernel, grid, arguments, config.num_warps, config.num_stages)


@triton.jit
def w8a8_gemm_kernel(
    # pointers
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
    stride_wn,
    stride_wk,
    stride_ws,
    stride_b,
    stride_ym,
    stride_yn,
    # tile shape
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    i_tile, i_split = tl.program_id(0), tl.program_id(1)
    b_acc, o_m, o_n = int8_tile(
        i_tile, i_split, x_q_ptr, weight_q_ptr, M, N, K, steps_per_split, stride_qm, stride_qk, stride_wn, stride_wk,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, NUM_SPLITS, EVEN_K,
    )  # fmt: skip
    if NUM_SPLITS > 1:
        m_tile = (o_m < M)[:, None] & (o_n < N)[None, :]
        if leave_part(b_acc, partial_ptr, arrived_ptr, m_tile, i_tile, i_split, NUM_SPLITS) < NUM_SPLITS - 1:
            return
        b_acc = sum_of_parts(b_acc, partial_ptr, arrived_ptr, m_tile, i_tile, NUM_SPLITS)
    b_y = scaled(b_acc, x_scale_ptr, weight_scale_ptr, o_m, o_n, M, N, stride_qs, stride_ws)
    store_rows(b_y, bias_ptr, y_ptr, o_m, o_n, M, N, stride_b, stride_ym, stride_yn)


@triton.jit
def int8_tile(
    i_tile,
    i_split,
    x_q_ptr,
    weight_q_ptr,
    M,
    N,
    K,
    steps_per_split,
    stride_qm,
    stride_qk,
    stride_wn,
    stride_wk,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """(acc [BLOCK_M, BLOCK_N] int32, its rows, its columns) of the tile, over this program's steps of its features."""
    i_m, i_n = tile_of(i_tile, N, M, BLOCK_N, BLOCK_M, GROUP_M)
    first, last = steps_of(i_split, K, steps_per_split, BLOCK_K, NUM_SPLITS)

    # int64: M * stride_qm passes 2**31 at 65,536 tokens of 32,768 features.
    o_m = i_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = i_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    o_k = first * BLOCK_K + tl.arange(0, BLOCK_K).to(tl.int64)
    p_x = x_q_ptr + tl.minimum(o_m, M - 1)[:, None] * stride_qm + o_k[None, :] * stride_qk
    p_w = weight_q_ptr + tl.minimum(o_n, N - 1)[None, :] * stride_wn + o_k[:, None] * stride_wk
    step = tl.full((), BLOCK_K, tl.int64)

    b_acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for i_k in range(first, last):
        if EVEN_K:
            b_x = tl.load(p_x)  # [BLOCK_M, BLOCK_K]
            b_w = tl.load(p_w)  # [BLOCK_K, BLOCK_N]
        else:
            m_k = i_k * BLOCK_K + tl.arange(0, BLOCK_K) < K
            b_x = tl.load(p_x, mask=m_k[None, :], other=0)  # [BLOCK_M, BLOCK_K]
            b_w = tl.load(p_w, mask=m_k[:, None], other=0)  # [BLOCK_K, BLOCK_N]
        b_acc = tl.dot(b_x, b_w, b_acc, out_dtype=tl.int32)
        p_x += step * stride_qk
        p_w += step * stride_wk
    return b_acc, o_m, o_n


@triton.jit
def steps_of(i_split, K, steps_per_split, BLOCK_K: tl.constexpr, NUM_SPLITS: tl.constexpr):
    """(first, end) of a program's share of the steps over the features."""
    num_steps = tl.cdiv(K, BLOCK_K)
    first = i_split * 0 if NUM_SPLITS == 1 else i_split * steps_per_split
    return first, num_steps if NUM_SPLITS == 1 else tl.minimum(first + steps_per_split, num_steps)


@triton.jit
def scaled(b_acc, x_scale_ptr, weight_scale_ptr, o_m, o_n, M, N, stride_qs, stride_ws):
    """acc * x_scale[m] * weight_scale[n] in float32"""
    b_x_scale = tl.load(x_scale_ptr + o_m * stride_qs, mask=o_m < M, other=0.0)  # [BLOCK_M]
    b_w_scale = tl.load(weight_scale_ptr + o_n * stride_ws, mask=o_n < N, other=0.0)  # [BLOCK_N]
    return b_acc.to(tl.float32) * b_x_scale[:, None] * b_w_scale[None, :]


@triton.jit
def store_rows(b_y, bias_ptr, y_ptr, o_m, o_n, M, N, stride_b, stride_ym, stride_yn):
    """y = b_y + bias, rounded to y's type."""
    m_m, m_n = o_m < M, o_n < N
    if bias_ptr is not None:
        b_bias = tl.load(bias_ptr + o_n * stride_b, mask=m_n, other=0.0)  # [BLOCK_N]
        b_y += b_bias.to(tl.float32)[None, :]
    p_y = y_ptr + o_m[:, None] * stride_ym + o_n[None, :] * stride_yn
    tl.store(p_y, b_y.to(y_ptr.dtype.element_ty), mask=m_m[:, None] & m_n[None, :])
