"""The routed experts of 4- and 8-bit weights in Triton; tiles, split and launches as in grouped_moe_gemm_triton.py.

The weights are the left operand, [BLOCK_N, BLOCK_M], as in weight_only_gemm_triton.py. Half of launch 1's rows are
gate's and half the same of up: one product makes both, whose halves are parted when the sums are done.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.launch import Launch
from gpu_kernels.products.weight_only_configs import Config
from gpu_kernels.products.words_experts import WordsExperts
from gpu_kernels.products.words_layout import PLANE_K, block_k
from gpu_kernels.products.words_product_triton import words_product

# Rows as grouped_moe_gemm_triton's. Few tokens: 128 rows are 8 KB a step of 128 features in 4 bits, of which three are
# on their way. Many: a tile's sum and its group's sum take 64 registers each.
ROWS = [
    (16, [Config(128, 16, 1, 0, 4, 4), Config(64, 16, 1, 0, 4, 5)]),
    (None, [Config(128, 64, 1, 0, 4, 4), Config(128, 128, 1, 0, 8, 3)]),
]


def words_launches(
    x: Tensor,
    pairs: Tensor,
    experts: Tensor,
    routing_weight: Tensor,
    gate_up: WordsExperts,
    down: WordsExperts,
    shares: Tensor,
    config: Config,
) -> list[Launch]:
    """gate and up, then down; operands as of grouped_moe_gemm_launches."""
    (E, K, I), T = down.shape, len(experts)
    hidden = torch.empty(len(pairs), I, dtype=x.dtype, device=x.device)  # [T * block_m, I]
    shared = {
        "pairs_ptr": pairs,
        "experts_ptr": experts,
        "hidden_ptr": hidden,
        "num_pairs": shares.shape[0] * shares.shape[1],
        "num_experts": E,
        "I": I,
        "K": K,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "COMPILED": isinstance(words_down_kernel, triton.JITFunction),
    }
    first = {"x_ptr": x, "top": shares.shape[1], "stride_xm": x.stride(0), "stride_xk": x.stride(1)}
    second = {"routing_ptr": routing_weight.contiguous(), "shares_ptr": shares}
    grids = (T, triton.cdiv(I, config.block_n // 2)), (T, triton.cdiv(K, config.block_n))
    options = config.num_warps, config.num_stages
    return [
        Launch(words_gate_up_kernel, grids[0], first | _weights(gate_up) | shared, *options),
        Launch(words_down_kernel, grids[1], second | _weights(down) | shared, *options),
    ]


def _weights(weights: WordsExperts) -> dict:
    return {
        "codes_ptr": weights.codes,
        "scale_ptr": weights.scale,
        "zero_point_ptr": weights.zero_point,
        "num_blocks": weights.codes.shape[1],
        "num_groups": weights.scale.shape[1],
        "GROUP_PLANES": 0 if weights.group_size is None else weights.group_size // PLANE_K,
        "BITS": weights.bits,
        "EVEN": weights.num_features % block_k(weights.bits) == 0,
    }


@triton.jit
def of_expert(codes_ptr, scale_ptr, zero_point_ptr, i_expert, num_blocks, num_groups, N):
    """The three pointers, at one expert's weights of N rows."""
    if zero_point_ptr is not None:
        zero_point_ptr += i_expert * num_groups * N
    return codes_ptr + i_expert * num_blocks * N * 32, scale_ptr + i_expert * num_groups * N, zero_point_ptr


@triton.jit
def words_gate_up_kernel(
    # pointers
    x_ptr,
    codes_ptr,
    scale_ptr,
    zero_point_ptr,
    hidden_ptr,
    pairs_ptr,
    experts_ptr,
    # sizes
    num_pairs,
    num_experts,
    top,
    I,
    K,
    num_blocks,
    num_groups,
    # strides, in elements
    stride_xm,
    stride_xk,
    # tile shape
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP_PLANES: tl.constexpr,
    BITS: tl.constexpr,
    EVEN: tl.constexpr,
    COMPILED: tl.constexpr,
):
    i_tile, i_n = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    i_expert = tl.load(experts_ptr + i_tile).to(tl.int64)
    if i_expert >= num_experts:
        return
    HALF: tl.constexpr = BLOCK_N // 2
    o_pair = i_tile * BLOCK_M + tl.arange(0, BLOCK_M)
    b_pair = tl.load(pairs_ptr + o_pair)  # [BLOCK_M]
    m_m = (b_pair < num_pairs)[None, :]
    p_x = x_ptr + (b_pair // top).to(tl.int64)[None, :] * stride_xm
    o_both = tl.arange(0, BLOCK_N)
    o_row = tl.minimum(i_n * HALF + o_both % HALF, I - 1) + o_both // HALF * I  # gate's rows, then up's
    p_codes, p_scale, p_zero = of_expert(codes_ptr, scale_ptr, zero_point_ptr, i_expert, num_blocks, num_groups, 2 * I)
    b_both = words_product(
        p_x, p_codes, p_scale, p_zero, None, m_m, o_row, tl.zeros((), tl.int64), num_blocks, 2 * I, K, num_groups,
        stride_xk, BLOCK_M, BLOCK_N, GROUP_PLANES, BITS, EVEN, COMPILED,
    )  # fmt: skip
    b_both = tl.permute(tl.reshape(b_both, (2, HALF, BLOCK_M)), (1, 2, 0))
    b_gate, b_up = tl.split(b_both)  # [HALF, BLOCK_M] each
    b_hidden = b_gate / (1.0 + tl.exp(-b_gate)) * b_up
    o_n = i_n * HALF + tl.arange(0, HALF)
    p_hidden = hidden_ptr + o_pair[None, :] * I + o_n[:, None]
    tl.store(p_hidden, b_hidden.to(hidden_ptr.dtype.element_ty), mask=m_m & (o_n < I)[:, None])


@triton.jit
def words_down_kernel(
    # pointers
    hidden_ptr,
    codes_ptr,
    scale_ptr,
    zero_point_ptr,
    routing_ptr,
    shares_ptr,
    pairs_ptr,
    experts_ptr,
    # sizes
    num_pairs,
    num_experts,
    I,
    K,
    num_blocks,
    num_groups,
    # tile shape
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP_PLANES: tl.constexpr,
    BITS: tl.constexpr,
    EVEN: tl.constexpr,
    COMPILED: tl.constexpr,
):
    i_tile, i_n = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    i_expert = tl.load(experts_ptr + i_tile).to(tl.int64)
    if i_expert >= num_experts:
        return
    o_pair = i_tile * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = i_n * BLOCK_N + tl.arange(0, BLOCK_N)
    b_pair = tl.load(pairs_ptr + o_pair).to(tl.int64)  # [BLOCK_M]
    m_m = b_pair < num_pairs
    p_codes, p_scale, p_zero = of_expert(codes_ptr, scale_ptr, zero_point_ptr, i_expert, num_blocks, num_groups, K)
    b_acc = words_product(
        hidden_ptr + o_pair[None, :] * I, p_codes, p_scale, p_zero, None, m_m[None, :], tl.minimum(o_n, K - 1),
        tl.zeros((), tl.int64), num_blocks, K, I, num_groups, 1,
        BLOCK_M, BLOCK_N, GROUP_PLANES, BITS, EVEN, COMPILED,
    )  # fmt: skip
    b_acc *= tl.load(routing_ptr + b_pair, mask=m_m, other=0.0)[None, :]
    p_shares = shares_ptr + b_pair[None, :] * K + o_n[:, None]
    tl.store(p_shares, b_acc, mask=m_m[None, :] & (o_n < K)[:, None])
