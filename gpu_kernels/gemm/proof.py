"""Common code of the products' problems: sizes, and the test that a sum in float32 is its oracle's."""

import math
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.proof.problems import Peer

TOKENS = (1, 16, 4096, 4, 64)
WEIGHTS = ((8192, 8192), (14336, 4096), (4096, 14336))  # (N, K): a square, and Llama 8B's feed-forward
# 2 * M operations per weight, of 0.5 to 2 bytes. An H200 does about 180 (bf16 near 790e12 per second over 4.3e12 bytes)
# in the time to read one byte.
BANDWIDTH_TOKENS = 64


def expected_and_magnitude(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """(x @ weight.T, |x| @ |weight|.T) in float64: the exact product, and the magnitude of its sums."""
    x, weight = x.double(), weight.double()
    return x @ weight.T, x.abs() @ weight.abs().T


def within_sums(y: Tensor, expected_and_magnitude: tuple[Tensor, Tensor], K: int) -> bool:
    """y is the expected product, within a rounding to y's type after K additions in float32.

    The rounding to y's type is half of one step. The sum takes at most K additions, and a tensor core cuts each off,
    which loses up to 2**-23 of the partial sum. Terms of random signs keep partial sums below about 2 * sqrt(K) typical
    terms, and the magnitude is more than 0.5 * K of them (0.64 for normal factors). So the additions lose at most
    K * 2**-23 * 2 * sqrt(K) / (0.5 * K) = 4 * sqrt(K) * 2**-23 of the magnitude.
    """
    expected, magnitude = expected_and_magnitude
    about = torch.finfo(y.dtype)
    bound = about.eps / 2 * expected.abs() + 4 * math.sqrt(K) * 2**-23 * magnitude + about.smallest_normal * about.eps
    return bool(((y.double() - expected).abs() <= bound).all())


def bf16_product(N: int, K: int) -> dict[str, Peer]:
    """The product in bfloat16 that a quantized one replaces, by torch (cuBLAS)."""

    def operands(problem: dict[str, Any]) -> dict[str, Tensor]:
        x = problem["x"].to(torch.bfloat16)
        return {"x": x, "weight": torch.randn(N, K, dtype=torch.bfloat16, device=x.device)}

    return {"torch.matmul bf16": Peer(operands, _matmul)}


def _matmul(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight.T
