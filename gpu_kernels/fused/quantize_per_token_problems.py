"""Problems on which per-token quantization is checked, compiled and timed."""

from functools import partial
from typing import Any

import torch

from gpu_kernels.fused.quantize_per_token import IN_DTYPES, quantize_per_token, quantize_per_token_ref
from gpu_kernels.fused.quantize_per_token_triton import quantize_per_token_launch
from gpu_kernels.fused.row_codes import CODE_DTYPES
from gpu_kernels.launch import Launch
from gpu_kernels.proof.configured import Unconfigured
from gpu_kernels.proof.problems import Draw, Op, Problem, dtype_name

TIMED = ((4096, 4096), (4096, 14336))  # rows of a prefill: Llama 8B's hidden and intermediate size
ODD = ((1, 1), (3, 131), (63, 63))


def problems() -> list[Problem]:
    timed = [_problem(M, K, torch.bfloat16, is_timed=True) for M, K in TIMED]
    odd = [_problem(M, K, dtype) for M, K in ODD for dtype in IN_DTYPES]
    return [*timed, *odd, *(_problem(M, K, torch.bfloat16, "fp8") for M, K in ODD)]


def _problem(M: int, K: int, dtype: torch.dtype, codes: str = "int8", is_timed: bool = False) -> Problem:
    name = dtype_name(dtype)
    end = "" if codes == "int8" else f" to {codes}"
    return Problem(
        op=Op(
            "quantize_per_token",
            Unconfigured(partial(quantize_per_token, codes=codes, impl="triton"), partial(_launches, codes)),
            partial(quantize_per_token_ref, codes=codes),
        ),
        label=f"M={M} K={K} {name}{end}",
        sizes={"M": M, "K": K, "dtype": name},
        operands=lambda device: {"x": Draw(device).normal(M, K, dtype=dtype)},
        agrees=_agrees,
        num_bytes=dtype.itemsize * M * K + M * K + 4 * M,  # x, codes, scales
        ops=4 * M * K,  # abs, max, divide, round
        bound="bandwidth",
        peers={"torch": partial(quantize_per_token_ref, codes=codes)},
        is_timed=is_timed,
    )


def _agrees(result: tuple, expected: tuple) -> bool:
    """Bit by bit: both divide and round in float32, to nearest."""
    return all(torch.equal(got.float(), right.float()) for got, right in zip(result, expected, strict=True))


def _launches(codes: str, operands: dict[str, Any], arch: int) -> list[Launch]:
    x = operands["x"]
    x_q, x_scale = torch.empty_like(x, dtype=CODE_DTYPES[codes]), torch.empty(x.shape[0], device=x.device)
    return [quantize_per_token_launch(x, x_q, x_scale, arch)]
