"""LLM.int8()'s product in Triton; the maths is in llm_int8_gemm.py.

Program  computes a tile of the int8 product as w8a8_gemm's does; scales it; then walks the outlier features in steps
         of BLOCK_F, gathering their activations, and adds their 16-bit product to the same sums in registers. Of a
         tile that is split, the last program to arrive does so.
"""

import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.chosen import chosen
from gpu_kernels.launch import Launch, architecture
from gpu_kernels.products import w8a8_gemm_configs
from gpu_kernels.products.code_launch import code_launch
from gpu_kernels.products.split_k import Workspace
from gpu_kernels.products.tiles_triton import leave_part, sum_of_parts
from gpu_kernels.products.w8a8_gemm_configs import Config, row_name
from gpu_kernels.products.w8a8_gemm_triton import int8_tile, scaled, store_rows

BLOCK_F = 32  # two steps of a tensor core's 16: a layer has a few tens of outlier features at most

# A thread's sums, beside which the outliers' addresses and tiles fit its 255 registers; with 128 they spill.
MAX_SUMS = 64


def candidates(arch: int, num_tokens: int) -> list[Config]:
    """w8a8_gemm's tile shapes that leave room for the outliers, the one to use first."""
    row = w8a8_gemm_configs.candidates(arch, num_tokens)
    return [config for config in row if config.block_m * config.block_n <= MAX_SUMS * 32 * config.num_warps]


def llm_int8_gemm_triton(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    x: Tensor,
    outlier_features: Tensor,
    outlier_weight: Tensor,
    bias: Tensor | None,
    y: Tensor,
    workspace: Workspace | None = None,
    config: Config | None = None,
) -> None:
    """Writes y [M, N] (shapes and dtypes as checked in llm_int8_gemm), with the tile shape the table has for it.

    raises  RuntimeError on CPU tensors outside the interpreter; NotImplementedError on an unknown architecture
    """
    arch = architecture("llm_int8_gemm", x, llm_int8_gemm_kernel)
    config = config or chosen("llm_int8_gemm", row_name(arch, len(x)), candidates(arch, len(x)), x.device)
    operands = (x_q, x_scale, weight_q, weight_scale, x, outlier_features, outlier_weight, bias, y)
    llm_int8_gemm_launch(*operands, workspace, config, arch).run(y.device)


def llm_int8_gemm_launch(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    x: Tensor,
    outlier_features: Tensor,
    outlier_weight: Tensor,
    bias: Tensor | None,
    y: Tensor,
    workspace: Workspace | None,
    config: Config,
    arch: int,
) -> Launch:
    """One program a share of a [block_m, block_n] tile of y."""
    grid, arguments = code_launch(x_q, x_scale, weight_q, weight_scale, bias, y, workspace, config, arch)
    arguments |= {
        "x_ptr": x,
        "features_ptr": outlier_features,
        "outlier_weight_ptr": outlier_weight,
        "F": outlier_features.numel(),
        "stride_xm": x.stride(0),
        "stride_xk": x.stride(1),
        "stride_f": outlier_features.stride(0),
        "stride_on": outlier_weight.stride(0),
        "stride_of": outlier_weight.stride(1),
        "BLOCK_F": BLOCK_F,
    }
    return Launch(llm_int8_gemm_kernel, grid, arguments, config.num_warps, config.num_stages)


@triton.jit
def llm_int8_gemm_kernel(
    # pointers
    x_q_ptr,
    x_scale_ptr,
    weight_q_ptr,
    weight_scale_ptr,
    x_ptr,
    features_ptr,
    outlier_weight_ptr,
    bias_ptr,
    y_ptr,
    partial_ptr,
    arrived_ptr,
    # sizes
    M,
    N,
    K,
    F,
    steps_per_split,
    # strides, in elements
    stride_qm,
    stride_qk,
    stride_qs,
    stride_wn,
    stride_wk,
    stride_ws,
    stride_xm,
    stride_xk,
    stride_f,
    stride_on,
    stride_of,
    stride_b,
    stride_ym,
    stride_yn,
    # tile shape
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_F: tl.constexpr,
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

    m_m, m_n = (o_m < M)[:, None], (o_n < N)[None, :]
    # One tile at a time: what a pipeline would hold beside the int8 tiles is not worth their stages.
    for i_f in tl.range(0, F, BLOCK_F, num_stages=1):
        o_f = i_f + tl.arange(0, BLOCK_F).to(tl.int64)
        m_f = o_f < F
        o_k = tl.load(features_ptr + o_f * stride_f, mask=m_f, other=0).to(tl.int64)  # [BLOCK_F]
        p_x = x_ptr + o_m[:, None] * stride_xm + o_k[None, :] * stride_xk
        b_x = tl.load(p_x, mask=m_m & m_f[None, :], other=0.0)  # [BLOCK_M, BLOCK_F]
        p_w = outlier_weight_ptr + o_n[None, :] * stride_on + o_f[:, None] * stride_of
        b_w = tl.load(p_w, mask=m_n & m_f[:, None], other=0.0)  # [BLOCK_F, BLOCK_N]
        b_y = tl.dot(b_x, b_w, b_y)
    store_rows(b_y, bias_ptr, y_ptr, o_m, o_n, M, N, stride_b, stride_ym, stride_yn)
