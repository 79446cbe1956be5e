"""Problems on which the FP8 product is checked, compiled and timed."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.gemm.code_gemm_triton import code_launch
from gpu_kernels.gemm.fp8_gemm import BLOCK, FP8, Operands, dequantize_weight_ref, dequantize_x_ref, fp8_gemm
from gpu_kernels.gemm.fp8_gemm_triton import fp8_gemm_triton, row_of
from gpu_kernels.gemm.proof import bf16_product, expected_and_magnitude
from gpu_kernels.gemm.split_k import make_workspace
from gpu_kernels.gemm.vllm_peers import scaled_mm_peers
from gpu_kernels.proof.configured import Configured
from gpu_kernels.proof.problems import Draw, Op, Peer, Problem, dtype_name
from gpu_kernels.proof.torch_products import scaled_mm

WEIGHTS = ((8192, 8192), (14336, 4096))  # (N, K): a square, and Llama 8B's feed-forward
TOKENS = (4096, 16, 512)
ODD = ((1, 131, 256, "token"), (17, 35, 131, "blocks"), (67, 130, 160, "tensor"))
# As w8a8_gemm's: 2 * M operations a byte of weights, and FP8 products run at the int8 ones' rate.
BANDWIDTH_TOKENS = 175
KERNEL = Configured(fp8_gemm, Operands, fp8_gemm_triton, code_launch, row_of)


def problems() -> list[Problem]:
    timed = [
        _problem(M, N, K, scales, torch.bfloat16, is_timed=True)
        for N, K in WEIGHTS
        for M in TOKENS
        for scales in ("token", "blocks")
    ]
    return timed + [_problem(*row, torch.float16, is_timed=False) for row in ODD]


def _problem(M: int, N: int, K: int, scales: str, out_dtype: torch.dtype, is_timed: bool) -> Problem:
    num_scales = {"tensor": 2, "token": M + N, "blocks": (M + N // BLOCK) * K // BLOCK}[scales]
    return Problem(
        op=Op("fp8_gemm", KERNEL, _reference),
        label=f"M={M} N={N} K={K} {scales} {dtype_name(out_dtype)}",
        sizes={"M": M, "N": N, "K": K, "scales": scales, "out_dtype": dtype_name(out_dtype)},
        operands=partial(_operands, M, N, K, scales, out_dtype),
        agrees=_agrees,
        num_bytes=M * K + N * K + 4 * num_scales + out_dtype.itemsize * M * N,  # codes, scales, y
        ops=2 * M * N * K,
        bound="bandwidth" if M <= BANDWIDTH_TOKENS else "fp8",
        peers=_peers(N, K, scales),
        is_timed=is_timed,
    )


def _operands(M: int, N: int, K: int, scales: str, out_dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Normal values as e4m3; scales in [0.5, 1.5)."""
    draw = Draw(device)
    num_blocks = -(-K // BLOCK)
    shapes = {"tensor": ([1], [1]), "token": ([M], [N]), "blocks": ([M, num_blocks], [-(-N // BLOCK), num_blocks])}
    return {
        "x_q": draw.normal(M, K).to(FP8),
        "x_scale": draw.uniform(*shapes[scales][0], low=0.5, high=1.5),
        "weight_q": draw.normal(N, K).to(FP8),
        "weight_scale": draw.uniform(*shapes[scales][1], low=0.5, high=1.5),
        "workspace": make_workspace(device),
        "out_dtype": out_dtype,
    }


def _reference(x_q, x_scale, weight_q, weight_scale, workspace, out_dtype) -> tuple[Tensor, Tensor]:
    return expected_and_magnitude(dequantize_x_ref(x_q, x_scale), dequantize_weight_ref(weight_q, weight_scale))


def _agrees(y: Tensor, expected_and_magnitude: tuple[Tensor, Tensor]) -> bool:
    """y is the expected product, within a rounding to y's type and the bits that an FP8 tensor core drops.

    It keeps 13 bits below the largest of a step's 32 products and the sum so far, so each product loses up to 2**-13
    of that one, which is below 8 typical products (normal factors pass 2.8 times their size in fewer than 1 of 100):
    in all 8 * 2**-13 of the magnitude. The float32 additions after that lose far less.
    """
    expected, magnitude = expected_and_magnitude
    about = torch.finfo(y.dtype)
    bound = about.eps / 2 * expected.abs() + 2**-10 * magnitude + about.smallest_normal * about.eps
    return bool(((y.double() - expected).abs() <= bound).all())


def _scaled_mm(x_q, x_scale, weight_q, weight_scale, workspace, out_dtype) -> Tensor:
    """torch's own, with a scale a row of each."""
    return scaled_mm(x_q, weight_q.T, scale_a=x_scale[:, None], scale_b=weight_scale[None, :], out_dtype=out_dtype)


def _peers(N: int, K: int, scales: str) -> dict[str, Any]:
    by_token = {"torch._scaled_mm": _scaled_mm} | scaled_mm_peers() if scales == "token" else {}
    return by_token | _bf16(N, K)


def _bf16(N: int, K: int) -> dict[str, Peer]:
    return {
        name: Peer(lambda problem, peer=peer: peer.prepare({"x": problem["x_q"].float()}), peer.call)
        for name, peer in bf16_product(N, K).items()
    }
