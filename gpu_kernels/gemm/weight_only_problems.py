"""Problems on which the products of 4- and 8-bit weights are checked, compiled and timed."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.gemm.proof import (
    BANDWIDTH_TOKENS,
    bf16_product,
    expected_and_magnitude,
    within_sums,
)
from gpu_kernels.gemm.split_k import make_workspace
from gpu_kernels.gemm.vllm_peers import marlin_peers
from gpu_kernels.gemm.weight_only_gemm import Operands, w4a16_gemm, w8a16_gemm
from gpu_kernels.gemm.weight_only_gemm_triton import launches, row_of, weight_only_gemm_triton
from gpu_kernels.gemm.words_layout import PLANE_K, WordsWeight, block_k, unpack_words_ref
from gpu_kernels.proof.configured import Configured
from gpu_kernels.proof.problems import Draw, Op, Peer, Problem, dtype_name
from gpu_kernels.proof.torch_products import convert_weight_to_int4pack, weight_int4pack_mm

CONFIGURED = {
    bits: Configured(function, Operands, weight_only_gemm_triton, launches, row_of)
    for bits, function in ((4, w4a16_gemm), (8, w8a16_gemm))
}


@dataclass(frozen=True, slots=True)
class Kind:
    """How a weight is quantized."""

    bits: int
    group_size: int | None
    symmetric: bool = True
    act_order: bool = False

    def __str__(self) -> str:
        grouped = "channel" if self.group_size is None else f"g{self.group_size}"
        return grouped + ("" if self.symmetric else " asym") + (" act-order" if self.act_order else "")


def weight_only_problem(
    M: int, N: int, K: int, kind: Kind, dtype: torch.dtype = torch.bfloat16, is_timed: bool = True
) -> Problem:
    groups = 1 if kind.group_size is None else K // kind.group_size
    scale_bytes = groups * N * (2 if kind.symmetric else 3)
    return Problem(
        op=Op(f"w{kind.bits}a16_gemm", CONFIGURED[kind.bits], _reference),
        label=f"M={M} N={N} K={K} {kind} {dtype_name(dtype)}",
        sizes={"M": M, "N": N, "K": K, "kind": str(kind), "dtype": dtype_name(dtype)},
        operands=partial(_operands, M, N, K, kind, dtype),
        agrees=partial(within_sums, K=K),
        num_bytes=2 * M * K + N * K * kind.bits // 8 + scale_bytes + 2 * M * N,  # x, codes, scales and zero points, y
        ops=2 * M * N * K,
        bound="bandwidth" if M <= BANDWIDTH_TOKENS else "bf16",
        peers=_peers(N, K, kind),
        is_timed=is_timed,
        is_interpretable=dtype == torch.float16,  # the interpreter's bfloat16 products are wrong
    )


def _operands(M: int, N: int, K: int, kind: Kind, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Normal activations, codes over their whole range, scales in [0.5, 1.5) / 8 or / 128."""
    draw = Draw(device)
    groups = 1 if kind.group_size is None else K // kind.group_size
    num_blocks = -(-K // block_k(kind.bits))
    # Any 16 bits are codes, those past K too.
    codes = draw.integers(-(2**15), 2**15, num_blocks, N, PLANE_K, dtype=torch.int16)
    scale = (draw.uniform(groups, N, low=0.5, high=1.5) / 2 ** (kind.bits - 1)).half()
    zero_point = None if kind.symmetric else draw.integers(-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1), groups, N)
    order = draw.uniform(K).argsort().int() if kind.act_order else None
    return {
        "x": draw.normal(M, K, dtype=dtype),
        "weight": WordsWeight(codes, scale, zero_point, order, K, kind.group_size, kind.bits),
        "workspace": make_workspace(device),
    }


def _reference(x: Tensor, weight: WordsWeight, workspace: object) -> tuple[Tensor, Tensor]:
    return expected_and_magnitude(x, unpack_words_ref(weight))


def _peers(N: int, K: int, kind: Kind) -> dict[str, Peer]:
    peers = bf16_product(N, K)
    if kind == Kind(4, 128) and N % 64 == 0:
        peers["torch._weight_int4pack_mm g128"] = Peer(partial(_int4pack_operands, N, K), _int4pack_mm)
        peers |= marlin_peers(N, K)
    return peers


def _int4pack_operands(N: int, K: int, problem: dict[str, Any]) -> dict[str, Any]:
    """torch's own 4-bit weights of the same size; 8 is the inner tiling that its documentation's examples use."""
    x = problem["x"].to(torch.bfloat16)
    bytes_of_two = torch.randint(0, 256, (N, K // 2), dtype=torch.uint8, device=x.device)
    packed = convert_weight_to_int4pack(bytes_of_two, 8)
    scales_and_zeros = torch.rand(K // 128, N, 2, dtype=torch.bfloat16, device=x.device)
    return {"x": x, "packed": packed, "scales_and_zeros": scales_and_zeros}


def _int4pack_mm(x: Tensor, packed: Tensor, scales_and_zeros: Tensor) -> Tensor:
    return weight_int4pack_mm(x, packed, 128, scales_and_zeros)
