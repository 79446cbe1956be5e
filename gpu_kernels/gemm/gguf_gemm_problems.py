"""Problems on which the GGUF product is checked, compiled and timed."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.gemm.gguf_gemm import Operands, dequantize_ref, gguf_gemm
from gpu_kernels.gemm.gguf_gemm_triton import gguf_gemm_triton, launches, row_of
from gpu_kernels.gemm.gguf_layout import BLOCK_SIZE, KQuantWeight
from gpu_kernels.gemm.proof import (
    BANDWIDTH_TOKENS,
    bf16_product,
    expected_and_magnitude,
    within_sums,
)
from gpu_kernels.gemm.split_k import make_workspace
from gpu_kernels.gemm.words_layout import WordsWeight
from gpu_kernels.proof.configured import Configured
from gpu_kernels.proof.problems import Draw, Op, Problem, dtype_name

BITS_PER_WEIGHT = {"q8_0": 8.5, "q4_k": 4.625, "q6_k": 6.5625}  # as gguf_layout holds them
TIMED = {"q4_k": (1, 16, 4096), "q6_k": (1, 16, 4096), "q8_0": (16,)}  # M: q8_0 is w8a16_gemm's kernel in groups of 32
ODD = ((1, 131, 512), (3, 35, 768))  # M, N, K
KERNEL = Configured(gguf_gemm, Operands, gguf_gemm_triton, launches, row_of)


def problems() -> list[Problem]:
    timed = [_problem(M, 8192, 8192, kind, torch.bfloat16, is_timed=True) for kind in TIMED for M in TIMED[kind]]
    return timed + [_problem(*shape, kind, torch.float16, is_timed=False) for kind in TIMED for shape in ODD]


def _problem(M: int, N: int, K: int, kind: str, dtype: torch.dtype, is_timed: bool) -> Problem:
    return Problem(
        op=Op("gguf_gemm", KERNEL, _reference),
        label=f"{kind} M={M} N={N} K={K} {dtype_name(dtype)}",
        sizes={"M": M, "N": N, "K": K, "type": kind, "dtype": dtype_name(dtype)},
        operands=partial(_operands, M, N, K, kind, dtype),
        agrees=partial(within_sums, K=K),
        num_bytes=2 * M * K + int(N * K * BITS_PER_WEIGHT[kind] / 8) + 2 * M * N,  # x, weight, y
        ops=2 * M * N * K,
        bound="bandwidth" if M <= BANDWIDTH_TOKENS else "bf16",
        peers=bf16_product(N, K),
        is_timed=is_timed,
    )


def _operands(M: int, N: int, K: int, kind: str, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Normal activations; codes and scales over their whole range; minima of about half the codes' span."""
    draw = Draw(device)
    supers = K // BLOCK_SIZE[kind]

    def words(plane_k: int, per_block: int) -> Tensor:
        return draw.integers(-(2**15), 2**15, -(-K // per_block), N, plane_k, dtype=torch.int16)

    d = (draw.uniform(supers, N, low=0.5, high=1.5) / 1024).half()
    if kind == "q8_0":
        weight = WordsWeight(words(32, 64), d, None, None, K, 32, 8)
    elif kind == "q4_k":
        scales, minima = draw.integers(0, 64, 2, K // 32, N, dtype=torch.uint8).unbind(0)
        weight = KQuantWeight(words(32, 128), None, scales, minima, d, 8 * d)
    else:
        high = draw.integers(0, 256, K // 64, N, 16, dtype=torch.uint8)
        weight = KQuantWeight(words(16, 64), high, draw.integers(-128, 128, K // 16, N), None, d, None)
    return {"x": draw.normal(M, K, dtype=dtype), "weight": weight, "workspace": make_workspace(device)}


def _reference(x: Tensor, weight: WordsWeight | KQuantWeight, workspace: object) -> tuple[Tensor, Tensor]:
    """The magnitude of Q4_K counts codes and minima apart, as they are summed."""
    expected, magnitude = expected_and_magnitude(x, dequantize_ref(weight))
    if isinstance(weight, KQuantWeight) and weight.minima is not None:
        shift = (8 * weight.d.double()).repeat_interleave(8, dim=0) * weight.minima.double()  # [K / 32, N]
        of_groups = x.double().abs().reshape(len(x), -1, weight.plane_k).sum(dim=2)  # [M, K / 32]
        magnitude = magnitude + 2 * of_groups @ shift
    return expected, magnitude
