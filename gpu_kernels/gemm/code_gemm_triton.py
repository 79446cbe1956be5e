"""Codes times codes in Triton: the kernel of w8a8_gemm, fp8_gemm and llm_int8_gemm, whose files have the maths.

Split    one program a [BLOCK_M, BLOCK_N] tile of y, or of few tokens one of NUM_SPLITS shares of its input features.
Program  walks K in steps of BLOCK_K, tiles of codes into the tensor cores. int8 codes are summed in int32 registers, so
         that parts in any order add to the same sum. FP8's sum of a step is scaled if there are blocks, and added in
         float32 registers. Then come the row's and the column's scale in float32, the outliers, the bias, the store.
Outliers a walk over the outlier features in steps of BLOCK_F, which gathers their activations and adds their 16-bit
         product to the same sums. The last program to arrive at a split tile does so.
sm_80    has no FP8: codes come as bytes and become float16, which holds each exactly, for 16-bit products. No weight
         is read twice for it, so few tokens lose little; many run at the 16-bit rate, and more exactly than on sm_90.
Order    tiles go down GROUP_M rows before the next column, so that programs that run together share
         both their rows of x_q and their rows of weight_q in the L2.
Edges    rows past M or N read the last real row, whose results are never stored: the loop needs no mask for them.
         Columns past K are masked, in the variant that K % BLOCK_K != 0 calls for.
"""

# Kernel bodies are Triton's language, whose stubs are wrong about iteration over tl.range, literals that are declared
# constexpr and literals that are passed as constexpr.
# pyright: reportGeneralTypeIssues=false, reportAssignmentType=false, reportArgumentType=false
import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.fp8_triton import readable, widen
from gpu_kernels.gemm.code_operands import CodeOperands
from gpu_kernels.gemm.split_k import share_tiles
from gpu_kernels.gemm.tiles_triton import leave_part, sum_of_parts, tile_of
from gpu_kernels.gemm.w8a8_gemm_configs import Config
from gpu_kernels.launch import Launch

BLOCK_F = 32  # two steps of a tensor core's 16: a layer has a few tens of outlier features at most
NO_OUTLIERS = dict.fromkeys(
    ["x_ptr", "features_ptr", "outlier_weight_ptr", "F", "stride_xm", "stride_xk", "stride_f", "stride_on", "stride_of"]
)


def code_launch(
    operands: CodeOperands, y: Tensor, config: Config, arch: int, outliers: dict[str, Tensor | int | None] = NO_OUTLIERS
) -> list[Launch]:
    """One program a share of a [block_m, block_n] tile of y.

    outliers  the kernel's arguments that NO_OUTLIERS names
    """
    x_q, weight_q, bias = readable(operands.x_q, arch), readable(operands.weight_q, arch), operands.bias
    x_scale, weight_scale = operands.scales()
    (M, K), N = x_q.shape, weight_q.shape[0]
    shares = share_tiles(operands.workspace, config, arch, (M, N), triton.cdiv(K, config.block_k), x_q)
    partial = shares.partial
    if partial is not None and x_q.dtype == torch.int8:
        partial = partial.view(torch.int32)  # whole numbers, as the sums are: in any order they add to the same
    arguments = {
        "x_q_ptr": x_q,
        "x_scale_ptr": x_scale,
        "weight_q_ptr": weight_q,
        "weight_scale_ptr": weight_scale,
        "bias_ptr": bias,
        "y_ptr": y,
        "partial_ptr": partial,
        "arrived_ptr": shares.arrived,
        "M": M,
        "N": N,
        "K": K,
        "steps_per_split": shares.steps_per_split,
        "stride_qm": x_q.stride(0),
        "stride_qk": x_q.stride(1),
        "stride_qs": x_scale.stride(0),
        "stride_qb": x_scale.stride(1) if operands.has_blocks else 0,
        "stride_wn": weight_q.stride(0),
        "stride_wk": weight_q.stride(1),
        "stride_ws": weight_scale.stride(0),
        "stride_wb": weight_scale.stride(1) if operands.has_blocks else 0,
        "stride_b": 0 if bias is None else bias.stride(0),
        "stride_ym": y.stride(0),
        "stride_yn": y.stride(1),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "BLOCK_F": BLOCK_F,
        "GROUP_M": config.group_m,
        "NUM_SPLITS": shares.num_splits,
        "HAS_BLOCKS": operands.has_blocks,
        "EVEN_K": K % config.block_k == 0,
    }
    return [Launch(code_gemm_kernel, shares.grid, arguments | outliers, config.num_warps, config.num_stages)]


@triton.jit
def steps_of(i_split, K, steps_per_split, BLOCK_K: tl.constexpr, NUM_SPLITS: tl.constexpr):
    """(first, end) of a program's share of the steps over the features."""
    num_steps = tl.cdiv(K, BLOCK_K)
    first = i_split * 0 if NUM_SPLITS == 1 else i_split * steps_per_split
    return first, num_steps if NUM_SPLITS == 1 else tl.minimum(first + steps_per_split, num_steps)


@triton.jit
def add_outliers(
    b_y, x_ptr, features_ptr, outlier_weight_ptr, o_m, o_n, m_m, m_n, F, stride_xm, stride_xk, stride_f, stride_on,
    stride_of, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """b_y [BLOCK_M, BLOCK_N] float32 and the 16-bit product of the F outlier features."""
    # One tile at a time: a pipeline's buffers next to the int8 tiles would cost those more stages than it gains.
    for i_f in tl.range(0, F, BLOCK_F, num_stages=1):
        o_f = i_f + tl.arange(0, BLOCK_F).to(tl.int64)
        m_f = o_f < F
        o_k = tl.load(features_ptr + o_f * stride_f, mask=m_f, other=0).to(tl.int64)  # [BLOCK_F]
        p_x = x_ptr + o_m[:, None] * stride_xm + o_k[None, :] * stride_xk
        b_x = tl.load(p_x, mask=m_m[:, None] & m_f[None, :], other=0.0)  # [BLOCK_M, BLOCK_F]
        p_w = outlier_weight_ptr + o_n[None, :] * stride_on + o_f[:, None] * stride_of
        b_w = tl.load(p_w, mask=m_n[None, :] & m_f[:, None], other=0.0)  # [BLOCK_F, BLOCK_N]
        b_y = tl.dot(b_x, b_w, b_y)
    return b_y


@triton.jit
def code_gemm_kernel(
    # pointers; None if the op has no such operand
    x_q_ptr,  # int8 or e4m3, or bytes of e4m3 if the GPU cannot convert them
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
    stride_qb,
    stride_wn,
    stride_wk,
    stride_ws,
    stride_wb,
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
    HAS_BLOCKS: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    IS_INT8: tl.constexpr = x_q_ptr.dtype.element_ty == tl.int8
    IS_BYTES: tl.constexpr = x_q_ptr.dtype.element_ty == tl.uint8
    ZERO: tl.constexpr = 0 if IS_INT8 else 0 if IS_BYTES else 0.0
    i_tile, i_split = tl.program_id(0), tl.program_id(1)
    i_m, i_n = tile_of(i_tile, N, M, BLOCK_N, BLOCK_M, GROUP_M)
    first, last = steps_of(i_split, K, steps_per_split, BLOCK_K, NUM_SPLITS)
    # int64: M * stride_qm passes 2**31 at 65,536 tokens of 32,768 features.
    o_m = i_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = i_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    o_k = first * BLOCK_K + tl.arange(0, BLOCK_K).to(tl.int64)
    o_x, o_w = tl.minimum(o_m, M - 1), tl.minimum(o_n, N - 1)
    p_x = x_q_ptr + o_x[:, None] * stride_qm + o_k[None, :] * stride_qk
    p_w = weight_q_ptr + o_w[None, :] * stride_wn + o_k[:, None] * stride_wk
    step = tl.full((), BLOCK_K, tl.int64)

    b_acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32 if IS_INT8 else tl.float32)
    for i_k in range(first, last):
        if EVEN_K:
            b_x = tl.load(p_x)  # [BLOCK_M, BLOCK_K]
            b_w = tl.load(p_w)  # [BLOCK_K, BLOCK_N]
        else:
            m_k = i_k * BLOCK_K + tl.arange(0, BLOCK_K) < K
            b_x = tl.load(p_x, mask=m_k[None, :], other=ZERO)  # [BLOCK_M, BLOCK_K]
            b_w = tl.load(p_w, mask=m_k[:, None], other=ZERO)  # [BLOCK_K, BLOCK_N]
        if IS_INT8:
            b_acc = tl.dot(b_x, b_w, b_acc, out_dtype=tl.int32)
        else:
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

    m_m, m_n = o_m < M, o_n < N
    m_tile = m_m[:, None] & m_n[None, :]
    if NUM_SPLITS > 1:
        if leave_part(b_acc, partial_ptr, arrived_ptr, m_tile, i_tile, i_split, NUM_SPLITS) < NUM_SPLITS - 1:
            return
        b_acc = sum_of_parts(b_acc, partial_ptr, arrived_ptr, m_tile, i_tile, NUM_SPLITS)
    b_y = b_acc.to(tl.float32)
    if not HAS_BLOCKS:
        b_x_scale = tl.load(x_scale_ptr + o_m * stride_qs, mask=m_m, other=0.0)  # [BLOCK_M]
        b_w_scale = tl.load(weight_scale_ptr + o_n * stride_ws, mask=m_n, other=0.0)  # [BLOCK_N]
        b_y = b_y * b_x_scale[:, None] * b_w_scale[None, :]
    if features_ptr is not None:
        b_y = add_outliers(
            b_y, x_ptr, features_ptr, outlier_weight_ptr, o_m, o_n, m_m, m_n, F, stride_xm, stride_xk, stride_f,
            stride_on, stride_of, BLOCK_F,
        )  # fmt: skip
    if bias_ptr is not None:
        b_bias = tl.load(bias_ptr + o_n * stride_b, mask=m_n, other=0.0)  # [BLOCK_N]
        b_y += b_bias.to(tl.float32)[None, :]
    p_y = y_ptr + o_m[:, None] * stride_ym + o_n[None, :] * stride_yn
    tl.store(p_y, b_y.to(y_ptr.dtype.element_ty), mask=m_tile)
