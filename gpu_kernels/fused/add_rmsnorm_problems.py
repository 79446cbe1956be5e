"""Problems on which add + RMSNorm (+ codes) is checked, compiled and timed."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_kernels.fused.add_rmsnorm import Operands, add_rmsnorm, add_rmsnorm_ref
from gpu_kernels.fused.add_rmsnorm_triton import launches
from gpu_kernels.fused.row_codes import codes_agree, row_codes_ref, row_dtype
from gpu_kernels.launch import Launch
from gpu_kernels.proof.configured import Unconfigured
from gpu_kernels.proof.problems import Draw, Op, Problem, dtype_name, same, within_rounding

EPS = 1e-5
# Tokens of a prefill; hidden sizes of Llama 8B and 405B; a whole batch of decoding.
TIMED = [(4096, 4096, "int8"), (4096, 4096, "fp8"), (4096, 16384, None), (64, 4096, "int8")]
ODD = [(1, 1), (3, 63), (131, 131), (5, 4099)]
FORMS = [(None, torch.float16), ("int8", torch.float32), ("fp8", torch.float16)]


def problems() -> list[Problem]:
    found = [_problem(M, K, torch.bfloat16, quantize, is_timed=True) for M, K, quantize in TIMED]
    found += [_problem(M, K, dtype, quantize) for M, K in ODD for quantize, dtype in FORMS]
    found.append(_problem(3, 63, torch.float16, "int8", has_residual=False, plus_one=True))
    return found


def _problem(
    M: int,
    K: int,
    dtype: torch.dtype,
    quantize: str | None,
    *,
    has_residual: bool = True,
    plus_one: bool = False,
    is_timed: bool = False,
) -> Problem:
    name = dtype_name(dtype)
    form = " ".join(filter(None, [quantize or "plain", "" if has_residual else "alone", "1+w" if plus_one else ""]))
    itemsize = dtype.itemsize
    num_bytes = itemsize * K  # weight
    num_bytes += (3 if has_residual else 1) * itemsize * M * K  # x, residual, h
    num_bytes += (row_dtype(dtype, quantize).itemsize * K + (4 if quantize else 0)) * M  # y, scale

    def operands(device: str) -> dict[str, Any]:
        draw = Draw(device)
        return {
            "x": draw.normal(M, K, dtype=dtype),
            "weight": draw.uniform(K, low=0.5, high=1.5).to(dtype),
            "residual": draw.normal(M, K, dtype=dtype) if has_residual else None,
        }

    return Problem(
        op=Op(
            "add_rmsnorm",
            Unconfigured(
                partial(add_rmsnorm, eps=EPS, plus_one=plus_one, quantize=quantize, impl="triton"),
                partial(_launches, plus_one, quantize),
            ),
            partial(add_rmsnorm_ref, eps=EPS, plus_one=plus_one),
        ),
        label=f"M={M} K={K} {name} {form}",
        sizes={"M": M, "K": K, "dtype": name, "form": form},
        operands=operands,
        agrees=partial(agrees, quantize=quantize),
        num_bytes=num_bytes,
        ops=(6 if quantize else 4) * M * K,  # add, square and sum, two products; absmax and divide
        bound="bandwidth",
        peers={"torch chain": partial(_chain, plus_one, quantize)},
        is_timed=is_timed,
    )


def agrees(result: tuple, expected: tuple, quantize: str | None) -> bool:
    """h bit by bit; y within roundings of float32, as many as `float32_roundings` says, and its own.

    The sum of K squares rounds K times in one order or another, and its square root halves that error; 2**-22 for
    rsqrt, which a GPU approximates, and mean, eps and two products: 8 more.
    """
    (y, scale, h), (exact, expected_h) = result, expected
    float32_roundings = (exact.shape[1] + 1) / 2 + 8
    if not same(h, expected_h):
        return False
    if quantize is None:
        return within_rounding(y, exact, float32_roundings)
    return codes_agree(y, scale, exact, float32_roundings * 2**-24 * exact.abs(), quantize)


def _launches(plus_one: bool, quantize: str | None, given: dict[str, Any], arch: int) -> list[Launch]:
    operands = Operands(**given, eps=EPS, plus_one=plus_one, quantize=quantize)
    return launches(operands, *operands.empty(), arch)


def _chain(plus_one: bool, quantize: str | None, x: Tensor, weight: Tensor, residual: Tensor | None) -> tuple:
    h = x if residual is None else x + residual
    y = F.rms_norm(h, weight.shape, weight + 1 if plus_one else weight, EPS)
    return (y, h) if quantize is None else (*row_codes_ref(y.float(), quantize), h)
