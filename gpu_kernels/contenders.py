"""What is timed: every way to do a job, with what it must at least compute and move."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gpu_kernels.quantize_per_token_triton import quantize_per_token_triton
from gpu_kernels.w8a8_gemm_configs import Config, candidates
from gpu_kernels.w8a8_gemm_triton import w8a8_gemm_triton

INT_MM_MIN_TOKENS = 17  # torch._int_mm refuses fewer


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do a job: what a call on an operand set does, and what it must at least compute and move."""

    op: str
    impl: str
    call: Callable[[dict[str, Tensor]], object]
    ops: int
    num_bytes: int


def operands(M: int, N: int, K: int, device: str) -> dict[str, Tensor]:
    """Random operands and poisoned results of every contender, for one call."""

    def codes(rows):
        return torch.randint(-128, 128, (rows, K), dtype=torch.int8, device=device)

    def scale(rows):
        return (torch.rand(rows, device=device) + 0.5) / 128

    return {
        "x_q": codes(M),
        "x_scale": scale(M),
        "weight_q": codes(N),
        "weight_scale": scale(N),
        "y": torch.full((M, N), torch.nan, dtype=torch.bfloat16, device=device),
        "acc": torch.full((M, N), -1, dtype=torch.int32, device=device),
        "x": torch.randn(M, K, dtype=torch.bfloat16, device=device),
        "weight": torch.randn(N, K, dtype=torch.bfloat16, device=device),
        "codes": torch.full((M, K), -128, dtype=torch.int8, device=device),
        "codes_scale": torch.full((M,), torch.nan, device=device),
    }


def contenders(M: int, N: int, K: int, arch: int) -> list[Contender]:
    """Every tile shape of the W8A8 product, torch's int8 product (bare: no scales, int32 out) and bf16 product."""
    ops = 2 * M * N * K
    w8a8_bytes = M * K + N * K + 4 * (M + N) + 2 * M * N  # codes, scales, y
    int_mm_bytes = M * K + N * K + 4 * M * N  # codes, acc
    bf16_bytes = 2 * (M * K + N * K + M * N)

    found = [
        Contender("w8a8_gemm", f"triton {config}", partial(run_w8a8, config=config), ops, w8a8_bytes)
        for config in candidates(arch, M)
    ]
    if M >= INT_MM_MIN_TOKENS:
        found.append(Contender("int8_gemm", "torch._int_mm", _int_mm, ops, int_mm_bytes))
    return [*found, Contender("bf16_gemm", "torch.matmul", _matmul, ops, bf16_bytes)]


def quantizer(M: int, K: int) -> Contender:
    """Counts 4 operations a feature (abs, max, divide, round), and bf16 read once though the kernel reads it twice."""
    return Contender("quantize_per_token", "triton", run_quantizer, 4 * M * K, 2 * M * K + M * K + 4 * M)


def run_w8a8(s: dict[str, Tensor], config: Config) -> None:
    w8a8_gemm_triton(s["x_q"], s["x_scale"], s["weight_q"], s["weight_scale"], None, s["y"], config)


def _int_mm(s: dict[str, Tensor]) -> None:
    torch._int_mm(s["x_q"], s["weight_q"].T, out=s["acc"])


def _matmul(s: dict[str, Tensor]) -> None:
    torch.matmul(s["x"], s["weight"].T, out=s["y"])


def run_quantizer(s: dict[str, Tensor]) -> None:
    quantize_per_token_triton(s["x"], s["codes"], s["codes_scale"])
