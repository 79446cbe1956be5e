"""Problems on which the W8A8 product is checked, compiled and timed."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.gemm.checks import FLOATS
from gpu_kernels.gemm.code_gemm_triton import code_launch
from gpu_kernels.gemm.split_k import make_workspace
from gpu_kernels.gemm.vllm_peers import scaled_mm_peers
from gpu_kernels.gemm.w8a8_gemm import Operands, w8a8_gemm, w8a8_gemm_ref
from gpu_kernels.gemm.w8a8_gemm_triton import row_of, w8a8_gemm_triton
from gpu_kernels.proof.configured import Configured
from gpu_kernels.proof.problems import Draw, Op, Peer, Problem, dtype_name, within_rounding
from gpu_kernels.proof.torch_products import int_mm

TOKENS = (4096, 16, 1, 512, 64)
WEIGHTS = ((4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192))  # (N, K): Llama 8B's projections, and a square
ODD = ((1, 5, 33), (17, 3, 64), (65, 67, 131))
# 2 * M operations per byte of weights. An H200 does about 350 per byte (int8 near 1.5e15 per second over 4.3e12 bytes).
BANDWIDTH_TOKENS = 175
INT_MM_MIN_TOKENS = 17  # torch._int_mm refuses fewer
KERNEL = Configured(w8a8_gemm, Operands, w8a8_gemm_triton, code_launch, row_of)


def problems() -> list[Problem]:
    timed = [_problem(M, N, K, torch.bfloat16, is_timed=True) for N, K in WEIGHTS for M in TOKENS]
    return timed + [_problem(*shape, dtype, is_timed=False) for shape in ODD for dtype in FLOATS]


def _problem(M: int, N: int, K: int, out_dtype: torch.dtype, is_timed: bool) -> Problem:
    dtype = dtype_name(out_dtype)
    return Problem(
        op=Op("w8a8_gemm", KERNEL, _reference),
        label=f"M={M} N={N} K={K} {dtype}",
        sizes={"M": M, "N": N, "K": K, "out_dtype": dtype},
        operands=partial(_operands, M, N, K, out_dtype),
        agrees=partial(within_rounding, float32_roundings=3),  # the accumulator, and a product with each scale
        num_bytes=M * K + N * K + 4 * (M + N) + out_dtype.itemsize * M * N,  # codes, scales, y
        ops=2 * M * N * K,
        bound="bandwidth" if M <= BANDWIDTH_TOKENS else "int8",
        peers=_peers(M),
        is_timed=is_timed,
        is_interpretable=out_dtype != torch.bfloat16,  # the interpreter cuts bfloat16 off
    )


def _operands(M: int, N: int, K: int, out_dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Codes over the whole of int8; scales in [0.5, 1.5) / 128."""
    draw = Draw(device)
    return {
        "x_q": draw.integers(-128, 128, M, K),
        "x_scale": draw.uniform(M, low=0.5, high=1.5) / 128,
        "weight_q": draw.integers(-128, 128, N, K),
        "weight_scale": draw.uniform(N, low=0.5, high=1.5) / 128,
        "workspace": make_workspace(device),
        "out_dtype": out_dtype,
    }


def _reference(x_q, x_scale, weight_q, weight_scale, workspace, out_dtype) -> Tensor:
    return w8a8_gemm_ref(x_q, x_scale, weight_q, weight_scale)


def _peers(M: int) -> dict[str, Any]:
    """torch's int8 product is bare: no scales, int32 out. Quantizing replaces the bfloat16 product."""
    int_mm = {"torch._int_mm": _int_mm} if M >= INT_MM_MIN_TOKENS else {}
    return int_mm | {"torch.matmul bf16": Peer(_bf16_operands, _matmul)} | scaled_mm_peers()


def _int_mm(x_q: Tensor, weight_q: Tensor, **_rest: Any) -> Tensor:
    return int_mm(x_q, weight_q.T)


def _bf16_operands(operands: dict[str, Any]) -> dict[str, Tensor]:
    """Normal values: a GPU multiplies few distinct ones faster, since it draws less power."""
    like = {"dtype": torch.bfloat16, "device": operands["x_q"].device}
    return {"x": torch.randn(operands["x_q"].shape, **like), "weight": torch.randn(operands["weight_q"].shape, **like)}


def _matmul(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight.T
