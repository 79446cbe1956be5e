"""Problems on which SiLU x up (+ codes) is checked, compiled and timed."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_kernels.fused.row_codes import codes_agree, row_codes_ref, row_dtype
from gpu_kernels.fused.silu_mul import Operands, silu_mul, silu_mul_ref
from gpu_kernels.fused.silu_mul_triton import launches
from gpu_kernels.launch import Launch
from gpu_kernels.proof.configured import Unconfigured
from gpu_kernels.proof.problems import Draw, Op, Problem, dtype_name

TIMED = [(4096, 14336, "int8"), (4096, 14336, "fp8"), (4096, 14336, None), (64, 14336, "fp8")]  # Llama 8B
ODD = [(1, 1), (3, 63), (131, 131), (5, 4099)]
FORMS = [(None, torch.float16), ("int8", torch.float32), ("fp8", torch.float16)]


def problems() -> list[Problem]:
    found = [_problem(M, K, torch.bfloat16, quantize, is_timed=True) for M, K, quantize in TIMED]
    return found + [_problem(M, K, dtype, quantize) for M, K in ODD for quantize, dtype in FORMS]


def _problem(M: int, K: int, dtype: torch.dtype, quantize: str | None, *, is_timed: bool = False) -> Problem:
    name, form = dtype_name(dtype), quantize or "plain"

    def operands(device: str) -> dict[str, Tensor]:
        """Two halves of one product's result; gates over the whole of SiLU's bend and far past it."""
        both = Draw(device).normal(M, 2 * K) * 8
        gate, up = both.to(dtype).chunk(2, dim=1)
        return {"gate": gate, "up": up}

    return Problem(
        op=Op(
            "silu_mul",
            Unconfigured(partial(silu_mul, quantize=quantize, impl="triton"), partial(_launches, quantize)),
            _reference,
        ),
        label=f"M={M} K={K} {name} {form}",
        sizes={"M": M, "K": K, "dtype": name, "form": form},
        operands=operands,
        agrees=partial(agrees, quantize=quantize),
        # gate, up, y, scale
        num_bytes=(2 * dtype.itemsize * K + row_dtype(dtype, quantize).itemsize * K + 4 * bool(quantize)) * M,
        ops=(6 if quantize else 4) * M * K,  # exp, add, divide, product; absmax and divide
        bound="bandwidth",
        peers={"torch chain": partial(_chain, quantize)},
        is_timed=is_timed,
    )


def _reference(gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """(y, how far it may be) [M, K] float64.

    exp's argument is rounded, which its result feels |gate| times: |gate| * 2**-23; its approximation, the addition,
    the division (2 ulp) and the product take 8 * 2**-23. Past -88 exp overflows and y is 0, less than 2**-120 off.
    """
    y = silu_mul_ref(gate, up)
    return y, (gate.double().abs() + 8) * 2**-23 * y.abs() + 2**-120 * up.double().abs()


def agrees(result: tuple, expected: tuple, quantize: str | None) -> bool:
    """Within the error that `_reference` derives, and a rounding to y's type or the codes' half step."""
    (y, scale), (exact, error) = result, expected
    if quantize is not None:
        return codes_agree(y, scale, exact, error, quantize)
    about = torch.finfo(y.dtype)
    bound = error + about.eps / 2 * exact.abs() + about.smallest_normal * about.eps
    return bool((((y.double() - exact).abs() <= bound) | (y.isnan() & exact.isnan())).all())


def _launches(quantize: str | None, given: dict[str, Any], arch: int) -> list[Launch]:
    operands = Operands(**given, quantize=quantize)
    return launches(operands, *operands.empty(), arch)


def _chain(quantize: str | None, gate: Tensor, up: Tensor) -> tuple:
    y = F.silu(gate) * up
    return (y,) if quantize is None else row_codes_ref(y.float(), quantize)
