"""What LLM.int8()'s product is checked, compiled and timed on."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.launch import Launch
from gpu_kernels.products.llm_int8_gemm import llm_int8_gemm, llm_int8_gemm_ref
from gpu_kernels.products.llm_int8_gemm_triton import candidates, llm_int8_gemm_launch, llm_int8_gemm_triton
from gpu_kernels.products.proof import bf16_product, dtype_name, within_sums
from gpu_kernels.products.split_k import make_workspace
from gpu_kernels.products.w8a8_gemm_configs import Config, row_name
from gpu_kernels.proof.draw import Draw
from gpu_kernels.proof.problems import Problem

TIMED = ((16, 4096, 4096, 24), (4096, 4096, 4096, 24), (4096, 14336, 4096, 24))  # M, N, K, outlier features
RAGGED = ((1, 131, 64, 3), (17, 3, 131, 33), (67, 67, 96, 0))
BANDWIDTH_TOKENS = 175  # as w8a8_gemm's


def problems() -> list[Problem]:
    timed = [_problem(*row, torch.bfloat16, is_timed=True) for row in TIMED]
    return timed + [_problem(*row, torch.float16, is_timed=False) for row in RAGGED]


def _problem(M: int, N: int, K: int, F: int, dtype: torch.dtype, is_timed: bool) -> Problem:
    return Problem(
        op="llm_int8_gemm",
        label=f"M={M} N={N} K={K} F={F} {dtype_name(dtype)}",
        sizes={"M": M, "N": N, "K": K, "F": F, "dtype": dtype_name(dtype)},
        operands=partial(_operands, M, N, K, F, dtype),
        call=partial(llm_int8_gemm, impl="triton"),
        reference=_reference,
        agrees=partial(within_sums, K=F + 4),  # the outliers' sum, onto one of three roundings
        launches=_launches,
        # codes, scales, outliers (activations, weights, their places), y
        num_bytes=M * K + N * K + 4 * (M + N) + 2 * F * (M + N) + 4 * F + 2 * M * N,
        ops=2 * M * N * (K + F),
        ceiling="bandwidth" if M <= BANDWIDTH_TOKENS else "int8",
        peers=bf16_product(N, K),
        variants=partial(_variants, M),
        row=partial(row_name, num_tokens=M),
        is_timed=is_timed,
        is_interpreted=not is_timed,
    )


def _operands(M: int, N: int, K: int, F: int, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Codes over the whole of int8; outliers near 6 and past it; NaN in every activation that is none."""
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


def _reference(
    x_q, x_scale, weight_q, weight_scale, x, outlier_features, outlier_weight, workspace
) -> tuple[Tensor, Tensor]:
    expected = llm_int8_gemm_ref(x_q, x_scale, weight_q, weight_scale, x, outlier_features, outlier_weight)
    outliers = x.double()[:, outlier_features.long()].abs() @ outlier_weight.double().abs().T
    inliers = expected - x.double()[:, outlier_features.long()] @ outlier_weight.double().T
    return expected, outliers + inliers.abs()


def _launches(operands: dict[str, Any], arch: int) -> list[Launch]:
    """One for each candidate, the default first."""
    *tensors, workspace = operands.values()
    x, weight_q = operands["x"], operands["weight_q"]
    y = torch.empty(x.shape[0], weight_q.shape[0], dtype=x.dtype, device=x.device)
    return [llm_int8_gemm_launch(*tensors, None, y, workspace, config, arch) for config in candidates(arch, x.shape[0])]


def _variants(M: int, arch: int) -> dict[str, Any]:
    return {str(config): partial(_with_config, config) for config in candidates(arch, M)}


def _with_config(
    config: Config, x_q, x_scale, weight_q, weight_scale, x, outlier_features, outlier_weight, workspace
) -> Tensor:
    y = torch.empty(x.shape[0], weight_q.shape[0], dtype=x.dtype, device=x.device)  # [M, N]
    codes = x_q, x_scale, weight_q, weight_scale
    llm_int8_gemm_triton(*codes, x, outlier_features, outlier_weight, None, y, workspace, config)
    return y
