"""The routed experts in Triton; the maths is in grouped_moe_gemm.py, the tiles in moe_tiles.py.

Split    one program a tile of up to BLOCK_M pairs of one expert, and BLOCK_N of its output features.
Launch 1 gathers the pairs' tokens, multiplies them with the same rows of gate and of up, and stores silu(gate) * up.
Launch 2 multiplies that with down and the routing weight, and stores each pair's share in float32.
Order    in act-order launch 1 gathers the features of few tokens by their expert's order; torch puts those of many in
         order, a row for each pair. `hidden_in_order` leaves no order to launch 2.
Then     torch sums the shares of each token, in the order of their places: no atomics, so one result.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
import triton
from torch import Tensor

from gpu_kernels.gemm.grouped_moe_dense_triton import grouped_dense_kernel
from gpu_kernels.gemm.grouped_moe_gemm import Experts, Operands
from gpu_kernels.gemm.grouped_moe_words_triton import grouped_words_kernel
from gpu_kernels.gemm.moe_tiles import tiles_by_expert
from gpu_kernels.gemm.w8a8_gemm_configs import Config
from gpu_kernels.gemm.weight_only_configs import Config as WordsConfig
from gpu_kernels.gemm.weight_only_gemm_triton import MAX_GATHERED_TOKENS
from gpu_kernels.gemm.words_experts import WordsExperts
from gpu_kernels.gemm.words_layout import PLANE_K, block_k
from gpu_kernels.launch import Launch, architecture, run_all
from gpu_kernels.tuned import chosen

ARCHITECTURES = (80, 90, 100)
# Rows (largest mean number of tokens per expert, candidates, the one to use first). Few: the weights are read once and
# the rate is the memory's: 64 rows of gate and of up by 128 features are 32 KB per stage. Many: gate's and up's sums
# take 32 or 64 registers each.
ROWS = [
    (16, [Config(16, 64, 128, 1, 4, 3), Config(16, 128, 64, 1, 4, 3), Config(16, 32, 128, 1, 4, 4)]),
    (None, [Config(64, 128, 64, 1, 8, 3), Config(128, 128, 64, 1, 8, 3)]),
]
# The same for weights in words. Few tokens: 128 rows are 8 KB per step of 128 features in 4 bits, of which three are on
# their way. Many: a tile's sum and its group's sum take 64 registers each.
WORDS_ROWS = [
    (16, [WordsConfig(128, 16, 1, 0, 4, 4), WordsConfig(64, 16, 1, 0, 4, 5)]),
    (None, [WordsConfig(128, 64, 1, 0, 4, 4), WordsConfig(128, 128, 1, 0, 8, 3)]),
]


def row(arch: int, tokens_per_expert: float, bits: int = 16) -> tuple[str, Sequence[Config | WordsConfig]]:
    """(name, candidates) of the row of ROWS, or of WORDS_ROWS for weights of 4 or 8 bits.

    raises  NotImplementedError if the architecture has no rows
    """
    if arch not in ARCHITECTURES:
        known = [f"sm_{known}" for known in ARCHITECTURES]
        raise NotImplementedError(f"grouped_moe_gemm: got sm_{arch}, expected one of {known}")
    rows = ROWS if bits == 16 else WORDS_ROWS
    largest, candidates = next(row for row in rows if row[0] is None or tokens_per_expert <= row[0])
    name = "any" if largest is None else f"<={largest} tokens an expert"
    return name if bits == 16 else f"{bits} bits, {name}", candidates


def row_of(operands: Operands, arch: int) -> tuple[str, Sequence[Config | WordsConfig]]:
    """(name, candidates)"""
    return row(arch, operands.tokens_per_expert, operands.bits)


def grouped_moe_gemm_triton(operands: Operands, y: Tensor, config: Config | WordsConfig | None = None) -> None:
    """Writes y [M, K], with the tile shape that the table has for it.

    raises  RuntimeError on CPU tensors outside the interpreter; NotImplementedError on an unknown architecture
    """
    arch = architecture("grouped_moe_gemm", y, grouped_dense_kernel)
    config = config or chosen("grouped_moe_gemm", *row_of(operands, arch), y.device)
    tiles = tiles_by_expert(operands.chosen, len(operands.gate_up), config.block_m)
    shares = torch.empty(*operands.chosen.shape, y.shape[1], dtype=torch.float32, device=y.device)  # [M, top, K]
    run_all(launches(operands, *tiles, shares, config), y.device)
    y.copy_(shares.sum(dim=1))


def launches(
    operands: Operands, pairs: Tensor, experts: Tensor, shares: Tensor, config: Config | WordsConfig
) -> list[Launch]:
    """gate and up, then down.

    pairs, experts  of moe_tiles.tiles_by_expert
    shares          [M, top, K] float32, to be written
    """
    x, (E, K, I), T = operands.x, operands.down.shape, len(experts)
    is_words, gate_up, has_rows = operands.bits != 16, operands.gate_up, False
    if isinstance(gate_up, WordsExperts) and gate_up.order is not None:
        has_rows = operands.tokens_per_expert > MAX_GATHERED_TOKENS
        if has_rows:
            x, gate_up = _rows_in_order(operands, gate_up.order, pairs, experts), replace(gate_up, order=None)
    kernel = grouped_words_kernel if is_words else grouped_dense_kernel
    hidden = torch.empty(len(pairs), I, dtype=x.dtype, device=x.device)  # [T * block_m, I]
    shared = {
        "pairs_ptr": pairs,
        "experts_ptr": experts,
        "num_pairs": shares.shape[0] * shares.shape[1],
        "num_experts": E,
        "top": shares.shape[1],
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
    }
    first = {
        "x_ptr": x,
        "routing_ptr": None,
        "out_ptr": hidden,
        "N": I,
        "K": K,
        "stride_xm": x.stride(0),
        "stride_xk": x.stride(1),
        "IS_GATED": True,
        **({"HAS_ROWS": has_rows} if is_words else {}),
    }
    second = {
        "x_ptr": hidden,
        "routing_ptr": operands.routing_weight.contiguous(),
        "out_ptr": shares,
        "N": K,
        "K": I,
        "stride_xm": hidden.stride(0),
        "stride_xk": hidden.stride(1),
        "IS_GATED": False,
        **({"HAS_ROWS": True} if is_words else {}),
    }
    gated_n = config.block_n // 2 if is_words else config.block_n  # half of the words' rows are gate's
    steps = (first, gate_up, gated_n), (second, operands.down, config.block_n)
    return [
        Launch(
            kernel,
            (T, triton.cdiv(arguments["N"], block_n)),
            shared | arguments | _weights(weights, config),
            config.num_warps,
            config.num_stages,
        )
        for arguments, weights, block_n in steps
    ]


def _rows_in_order(operands: Operands, order: Tensor, pairs: Tensor, experts: Tensor) -> Tensor:
    """[T * block_m, K]: the token of each pair, its features in the order of its expert. order [E, K]"""
    x, top = operands.x, operands.chosen.shape[1]
    token = (pairs // top).clamp(max=len(x) - 1)
    expert = experts.clamp(max=len(order) - 1).repeat_interleave(len(pairs) // len(experts))
    return x[token.long()].gather(1, order[expert.long()].long())


def _weights(weights: Experts, config: Config | WordsConfig) -> dict[str, Tensor | int | None]:
    if not isinstance(weights, WordsExperts):
        assert isinstance(config, Config)  # `row` gives weights in words the other class
        return {
            "weight_ptr": weights,
            "BLOCK_K": config.block_k,
            "EVEN_K": weights.shape[2] % config.block_k == 0,
        }
    return {
        "codes_ptr": weights.codes,
        "scale_ptr": weights.scale,
        "zero_point_ptr": weights.zero_point,
        "order_ptr": weights.order,
        "num_blocks": weights.codes.shape[1],
        "num_groups": weights.scale.shape[1],
        "GROUP_PLANES": 0 if weights.group_size is None else weights.group_size // PLANE_K,
        "BITS": weights.bits,
        "EVEN_K": weights.num_features % block_k(weights.bits) == 0,
        "COMPILED": isinstance(grouped_words_kernel, triton.JITFunction),
    }
