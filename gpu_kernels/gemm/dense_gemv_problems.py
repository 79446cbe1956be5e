"""Problems on which the product of one token is checked, compiled and timed."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.gemm.dense_gemv import Operands, dense_gemv
from gpu_kernels.gemm.dense_gemv_triton import dense_gemv_triton, launches, row_of
from gpu_kernels.gemm.proof import expected_and_magnitude, within_sums
from gpu_kernels.proof.configured import Configured
from gpu_kernels.proof.problems import Draw, Op, Problem, dtype_name

KERNEL = Configured(dense_gemv, Operands, dense_gemv_triton, launches, row_of)
# (N, K) of llama-3.2-1b: gate and up, the head, query, key and value, output, down; then a square.
TIMED = ((16384, 2048), (128256, 2048), (3072, 2048), (2048, 2048), (2048, 8192), (8192, 8192))
ODD = ((1, 1, False), (131, 320, True), (3, 1025, False), (64, 2048, True))  # N, K, with a bias


def problems() -> list[Problem]:
    timed = [_problem(N, K, False, torch.bfloat16, is_timed=True) for N, K in TIMED]
    return timed + [_problem(N, K, has_bias, torch.float16) for N, K, has_bias in ODD]


def _problem(N: int, K: int, has_bias: bool, dtype: torch.dtype, is_timed: bool = False) -> Problem:
    return Problem(
        op=Op("dense_gemv", KERNEL, _reference),
        label=f"N={N} K={K} {dtype_name(dtype)}" + (" bias" if has_bias else ""),
        sizes={"N": N, "K": K, "dtype": dtype_name(dtype)},
        operands=partial(_operands, N, K, has_bias, dtype),
        agrees=partial(within_sums, K=K + 1),  # the bias is one term more
        num_bytes=2 * (N * K + K + N + (2 * N if has_bias else 0)),  # weight, x, y, a bias in float32
        ops=2 * N * K,
        bound="bandwidth",
        peers={"torch.matmul": _matmul},
        is_timed=is_timed,
    )


def _operands(N: int, K: int, has_bias: bool, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Rows of a wider buffer full of NaN."""
    draw = Draw(device)
    buffer = torch.full((N, K + 16), torch.nan, dtype=dtype, device=device)
    buffer[:, :K] = draw.normal(N, K, dtype=dtype)
    return {
        "x": draw.normal(1, K, dtype=dtype),
        "weight": buffer[:, :K],
        "bias": draw.normal(N) if has_bias else None,
    }


def _reference(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    expected, magnitude = expected_and_magnitude(x, weight)
    return (expected, magnitude) if bias is None else (expected + bias.double(), magnitude + bias.double().abs())


def _matmul(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x @ weight.T
