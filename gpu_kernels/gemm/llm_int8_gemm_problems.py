"""Problems on which LLM.int8()'s product is checked, compiled and timed."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.gemm.llm_int8_gemm import Operands, llm_int8_gemm, llm_int8_gemm_ref
from gpu_kernels.gemm.llm_int8_gemm_triton import launches, llm_int8_gemm_triton, row_of
from gpu_kernels.gemm.proof import bf16_product, within_sums
from gpu_kernels.gemm.split_k import make_workspace
from gpu_kernels.proof.configured import Configured
from gpu_kernels.proof.problems import Draw, Op, Problem, dtype_name

TIMED = ((16, 4096, 4096, 24), (4096, 4096, 4096, 24), (4096, 14336, 4096, 24))  # M, N, K, outlier features
ODD = ((1, 131, 64, 3), (17, 3, 131, 33), (67, 67, 96, 0))
BANDWIDTH_TOKENS = 175  # as w8a8_gemm's
KERNEL = Configured(llm_int8_gemm, Operands, llm_int8_gemm_triton, launches, row_of)


def problems() -> list[Problem]:
    timed = [_problem(*row, torch.bfloat16, is_timed=True) for row in TIMED]
    return timed + [_problem(*row, torch.float16, is_timed=False) for row in ODD]


def _problem(M: int, N: int, K: int, F: int, dtype: torch.dtype, is_timed: bool) -> Problem:
    return Problem(
        op=Op("llm_int8_gemm", KERNEL, _reference),
        label=f"M={M} N={N} K={K} F={F} {dtype_name(dtype)}",
        sizes={"M": M, "N": N, "K": K, "F": F, "dtype": dtype_name(dtype)},
        operands=partial(_operands, M, N, K, F, dtype),
        agrees=partial(within_sums, K=F + 4),  # the outliers' sum, onto one of three roundings
        # codes, scales, outliers (activations, weights, their places), y
        num_bytes=M * K + N * K + 4 * (M + N) + 2 * F * (M + N) + 4 * F + 2 * M * N,
        ops=2 * M * N * (K + F),
        bound="bandwidth" if M <= BANDWIDTH_TOKENS else "int8",
        peers=bf16_product(N, K),
        is_timed=is_timed,
    )


def _operands(M: int, N: int, K: int, F: int, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Codes over the whole of int8; outliers near 6 and past it; NaN in every activation that is no outlier."""
    draw = Draw(device)
    features = draw.uniform(K).argsort()[:F]
    x = torch.full((M, K), torch.nan, dtype=dtype, device=device)
    if device != "meta":
        x[:, features] = 6 * draw.normal(M, F, dtype=dtype)
    return {
        "x_q": draw.integers(-128, 128, M, K),
        "x_scale": draw.uniform(M, low=0.5, high=1.5) / 128,
        "weight_q": draw.integers(-128, 128, N, K),
        "weight_scale": draw.uniform(N, low=0.5, high=1.5) / 128,
        "x": x,
        "outlier_features": features.int(),
        "outlier_weight": draw.normal(N, F, dtype=dtype),
        "workspace": make_workspace(device),
    }


def _reference(**given: Any) -> tuple[Tensor, Tensor]:
    """(expected, magnitude of the outliers' sum and of its other addend) [M, N] float64"""
    operands = Operands(**given)
    expected, outlier_weight = llm_int8_gemm_ref(operands), operands.outlier_weight.double()
    x = operands.x.double()[:, operands.outlier_features.long()]  # [M, F]
    inliers = expected - x @ outlier_weight.T
    return expected, x.abs() @ outlier_weight.abs().T + inliers.abs()
