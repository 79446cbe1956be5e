"""The routed experts in Triton; the maths is in grouped_moe_gemm.py, the tiles in moe_tiles.py.

Split    one program a tile of up to BLOCK_M pairs of one expert, and BLOCK_N of its output features.
Launch 1 gathers the pairs' tokens, multiplies them with the same rows of gate and of up, and stores silu(gate) * up.
Launch 2 multiplies that with down and the routing weight, and stores each pair's share in float32.
Then     torch sums the shares of each token, in the order of their places: no atomics, so one result.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.chosen import chosen as chosen_config
from gpu_kernels.launch import Launch, architecture
from gpu_kernels.products.grouped_moe_words_triton import ROWS as WORDS_ROWS
from gpu_kernels.products.grouped_moe_words_triton import words_launches
from gpu_kernels.products.moe_tiles import tiles_by_expert
from gpu_kernels.products.w8a8_gemm_configs import Config
from gpu_kernels.products.weight_only_configs import Config as WordsConfig
from gpu_kernels.products.words_experts import WordsExperts

ARCHITECTURES = (80, 90, 100)
# Rows (largest mean number of tokens an expert, candidates, the one to use first). Few: the weights are read once and
# the rate is the memory's: 64 rows of gate and of up by 128 features are 32 KB a stage. Many: gate's and up's sums take
# 32 or 64 registers each.
ROWS = [
    (16, [Config(16, 64, 128, 1, 4, 3), Config(16, 128, 64, 1, 4, 3), Config(16, 32, 128, 1, 4, 4)]),
    (None, [Config(64, 128, 64, 1, 8, 3), Config(128, 128, 64, 1, 8, 3)]),
]


def candidates(arch: int, tokens_per_expert: float, bits: int = 16) -> list[Config] | list[WordsConfig]:
    """The row of ROWS, or of the words' for weights of 4 or 8 bits; the configuration to use first.

    raises  NotImplementedError if the architecture has none
    """
    return _row(arch, tokens_per_expert, bits)[1]


def row_name(arch: int, tokens_per_expert: float, bits: int = 16) -> str:
    largest = _row(arch, tokens_per_expert, bits)[0]
    name = "any" if largest is None else f"<={largest} tokens an expert"
    return name if bits == 16 else f"{bits} bits, {name}"


def _row(arch: int, tokens_per_expert: float, bits: int) -> tuple[int | None, list]:
    if arch not in ARCHITECTURES:
        known = [f"sm_{known}" for known in ARCHITECTURES]
        raise NotImplementedError(f"grouped_moe_gemm: got sm_{arch}, expected one of {known}")
    rows = ROWS if bits == 16 else WORDS_ROWS
    return next(row for row in rows if row[0] is None or tokens_per_expert <= row[0])


def grouped_moe_gemm_triton(
    x: Tensor,
    chosen: Tensor,
    routing_weight: Tensor,
    gate_up: Tensor | WordsExperts,
    down: Tensor | WordsExperts,
    y: Tensor,
    config: Config | WordsConfig | None = None,
) -> None:
    """Writes y [M, K] (shapes and dtypes as checked in grouped_moe_gemm).

    raises  RuntimeError on CPU tensors outside the interpreter; NotImplementedError on an unknown architecture
    """
    arch = architecture("grouped_moe_gemm", x, gate_up_kernel)
    if config is None:
        mean = chosen.numel() / len(gate_up)
        form = arch, mean, gate_up.bits if isinstance(gate_up, WordsExperts) else 16
        config = chosen_config("grouped_moe_gemm", row_name(*form), candidates(*form), x.device)
    pairs, experts = tiles_by_expert(chosen, len(gate_up), config.block_m)
    shares = torch.empty(*chosen.shape, x.shape[1], dtype=torch.float32, device=x.device)  # [M, top, K]
    for launch in grouped_moe_gemm_launches(x, pairs, experts, routing_weight, gate_up, down, shares, config):
        launch.run(x.device)
    y.copy_(shares.sum(dim=1))


def grouped_moe_gemm_launches(
    x: Tensor,
    pairs: Tensor,
    experts: Tensor,
    routing_weight: Tensor,
    gate_up: Tensor | WordsExperts,
    down: Tensor | WordsExperts,
    shares: Tensor,
    config: Config | WordsConfig,
) -> list[Launch]:
    """gate and up, then down.

    pairs, experts  of moe_tiles.tiles_by_expert
    shares          [M, top, K] float32, to be written
    """
    if isinstance(down, WordsExperts):
        return words_launches(x, pairs, experts, routing_weight, gate_up, down, shares, config)
    (E, K, I), T = down.shape, len(experts)
    hidden = torch.empty(len(pairs), I, dtype=x.dtype, device=x.device)  # [T * block_m, I]
    shared = {
        "pairs_ptr": pairs,
        "experts_ptr": experts,
        "num_pairs": shares.shape[0] * shares.shape[1],
        "num_experts": E,
        "I": I,
        "K": K,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
    }
    first = {
        "x_ptr": x,
        "gate_up_ptr": gate_up,
        "hidden_ptr": hidden,
        "top": shares.shape[1],
        "stride_xm": x.stride(0),
        "stride_xk": x.stride(1),
        "EVEN_K": K % config.block_k == 0,
    }
    second = {
        "hidden_ptr": hidden,
        "down_ptr": down,
        "routing_ptr": routing_weight.contiguous(),
        "shares_ptr": shares,
        "EVEN_I": I % config.block_k == 0,
    }
    warps, stages = config.num_warps, config.num_stages
    return [
        Launch(gate_up_kernel, (T, triton.cdiv(I, config.block_n)), first | shared, warps, stages),
        Launch(down_kernel, (T, triton.cdiv(K, config.block_n)), second | shared, warps, stages),
    ]


@triton.jit
def gate_up_kernel(
    # pointers
    x_ptr,
    gate_up_ptr,
    hidden_ptr,
    pairs_ptr,
    experts_ptr,
    # sizes
    num_pairs,
    num_experts,
    top,
    I,
    K,
    # strides, in elements
    stride_xm,
    stride_xk,
    # tile shape
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    i_tile, i_n = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    i_expert = tl.load(experts_ptr + i_tile).to(tl.int64)
    if i_expert >= num_experts:
        return
    o_row = i_tile * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = i_n * BLOCK_N + tl.arange(0, BLOCK_N)
    o_k = tl.arange(0, BLOCK_K).to(tl.int64)
    b_pair = tl.load(pairs_ptr + o_row)  # [BLOCK_M]
    m_m = (b_pair < num_pairs)[:, None]
    p_x = x_ptr + (b_pair // top).to(tl.int64)[:, None] * stride_xm
    o_gate = (i_expert * 2 * I + tl.minimum(o_n, I - 1))[None, :] * K
    p_gate, p_up = gate_up_ptr + o_gate, gate_up_ptr + o_gate + tl.full((), 1, tl.int64) * I * K

    b_gate = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    b_up = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i_k in range(0, K, BLOCK_K):
        o_feature = i_k + o_k
        m_k = o_feature < K
        m_x = m_m if EVEN_K else m_m & m_k[None, :]
        b_x = tl.load(p_x + o_feature[None, :] * stride_xk, mask=m_x, other=0.0)  # [BLOCK_M, BLOCK_K]
        if EVEN_K:
            b_w_gate = tl.load(p_gate + o_feature[:, None])  # [BLOCK_K, BLOCK_N]
            b_w_up = tl.load(p_up + o_feature[:, None])  # [BLOCK_K, BLOCK_N]
        else:
            b_w_gate = tl.load(p_gate + o_feature[:, None], mask=m_k[:, None], other=0.0)
            b_w_up = tl.load(p_up + o_feature[:, None], mask=m_k[:, None], other=0.0)
        b_gate = tl.dot(b_x, b_w_gate, b_gate)
        b_up = tl.dot(b_x, b_w_up, b_up)

    b_hidden = b_gate / (1.0 + tl.exp(-b_gate)) * b_up
    p_hidden = hidden_ptr + o_row[:, None] * I + o_n[None, :]
    tl.store(p_hidden, b_hidden.to(hidden_ptr.dtype.element_ty), mask=m_m & (o_n < I)[None, :])


@triton.jit
def down_kernel(
    # pointers
    hidden_ptr,
    down_ptr,
    routing_ptr,
    shares_ptr,
    pairs_ptr,
    experts_ptr,
    # sizes
    num_pairs,
    num_experts,
    I,
    K,
    # tile shape
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_I: tl.constexpr,
):
    i_tile, i_n = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    i_expert = tl.load(experts_ptr + i_tile).to(tl.int64)
    if i_expert >= num_experts:
        return
    o_row = i_tile * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = i_n * BLOCK_N + tl.arange(0, BLOCK_N)
    o_k = tl.arange(0, BLOCK_K).to(tl.int64)
    b_pair = tl.load(pairs_ptr + o_row).to(tl.int64)  # [BLOCK_M]
    m_m = b_pair < num_pairs
    p_hidden = hidden_ptr + o_row[:, None] * I
    p_down = down_ptr + (i_expert * K + tl.minimum(o_n, K - 1))[None, :] * I

    b_acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i_k in range(0, I, BLOCK_K):
        o_feature = i_k + o_k
        m_k = o_feature < I
        m_hidden = m_m[:, None] if EVEN_I else m_m[:, None] & m_k[None, :]
        b_hidden = tl.load(p_hidden + o_feature[None, :], mask=m_hidden, other=0.0)  # [BLOCK_M, BLOCK_K]
        if EVEN_I:
            b_w = tl.load(p_down + o_feature[:, None])  # [BLOCK_K, BLOCK_N]
        else:
            b_w = tl.load(p_down + o_feature[:, None], mask=m_k[:, None], other=0.0)
        b_acc = tl.dot(b_hidden, b_w, b_acc)

    b_acc *= tl.load(routing_ptr + b_pair, mask=m_m, other=0.0)[:, None]
    p_shares = shares_ptr + b_pair[:, None] * K + o_n[None, :]
    tl.store(p_shares, b_acc, mask=m_m[:, None] & (o_n < K)[None, :])
