"""The residual added, RMS-normalized, and quantized for the product that follows, in one pass.

    h[m, k] = x[m, k] + residual[m, k]                                   float32, rounded to x's type: the new residual
    y[m, k] = h[m, k] / sqrt(mean_k h[m, k]**2 + eps) * weight[k]        float32; weight + 1 where plus_one (Gemma)

and y rounded to x's type, or int8 or FP8 codes with one scale per token (row_codes.py).

source  Zhang and Sennrich 2019, arXiv:1910.07467, eq. 4
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.dispatch import results_of
from gpu_kernels.fused.row_codes import check_quantize, empty_rows, write_rows

IN_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_K = 32768  # a row is held in registers: 32 a thread of 1024


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of one call.

    x         [M, K] float16, bfloat16 or float32, rows of any stride, 1 <= K <= MAX_K
    weight    [K] float16, bfloat16 or float32
    residual  as x
    plus_one  the factor is weight + 1
    quantize  None, "int8" or "fp8" (e4m3)
    raises    TypeError (dtypes), ValueError (shapes, devices), NotImplementedError (K, quantize)
    """

    x: Tensor
    weight: Tensor
    residual: Tensor | None = None
    eps: float = 1e-6
    plus_one: bool = False
    quantize: str | None = None

    def __post_init__(self) -> None:
        x, weight, residual = self.x, self.weight, self.residual
        check_quantize("add_rmsnorm", self.quantize)
        given = {"x": x, "weight": weight} | ({} if residual is None else {"residual": residual})
        for name, tensor in given.items():
            if tensor.dtype not in IN_DTYPES:
                raise TypeError(f"add_rmsnorm: got {name} {tensor.dtype}, expected {' or '.join(map(str, IN_DTYPES))}")
            if tensor.device != x.device:
                raise ValueError(f"add_rmsnorm: got {name} on {tensor.device} and x on {x.device}, expected one device")
        if x.dim() != 2 or not x.shape[1]:
            raise ValueError(f"add_rmsnorm: got x {list(x.shape)}, expected [M, K] with K of 1 or more")
        if x.shape[1] > MAX_K:
            raise NotImplementedError(f"add_rmsnorm: got K = {x.shape[1]}, expected at most {MAX_K}")
        if list(weight.shape) != [x.shape[1]]:
            raise ValueError(f"add_rmsnorm: got weight {list(weight.shape)}, expected [{x.shape[1]}]")
        if residual is not None and (residual.shape != x.shape or residual.dtype != x.dtype):
            got = f"residual {residual.dtype} {list(residual.shape)}"
            raise ValueError(f"add_rmsnorm: got {got}, expected x's {x.dtype} {list(x.shape)}")

    def empty(self) -> tuple[Tensor, Tensor | None, Tensor]:
        """(y [M, K], scale [M] or None, h [M, K]), to be written; without a residual h is x"""
        h = self.x if self.residual is None else torch.empty_like(self.x)
        return *empty_rows(self.x, self.quantize), h


def add_rmsnorm_ref(
    x: Tensor, weight: Tensor, *, residual: Tensor | None = None, eps: float = 1e-6, plus_one: bool = False
) -> tuple[Tensor, Tensor]:
    """(y [M, K] float64, h [M, K] in x's type): the oracle. h is the one rounding that all must share."""
    h = x if residual is None else (x.float() + residual.float()).to(x.dtype)
    exact = h.double()
    factor = weight.double() + plus_one
    return exact * (exact.square().mean(dim=1, keepdim=True) + eps).rsqrt() * factor, h


def add_rmsnorm(
    x: Tensor,
    weight: Tensor,
    *,
    residual: Tensor | None = None,
    eps: float = 1e-6,
    plus_one: bool = False,
    quantize: str | None = None,
    impl: str | None = None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """(y [M, K] in x's type or its codes, scale [M] float32 or None, h [M, K] in x's type; without a residual, x).

    The arguments are those of `Operands`; impl names an entry of the table other than the first.
    """
    operands = Operands(x, weight, residual, eps, plus_one, quantize)
    return results_of("add_rmsnorm", operands, impl)


def add_rmsnorm_reference(operands: Operands, y: Tensor, scale: Tensor | None, h: Tensor) -> None:
    """Writes the oracle's result into y, scale and h: the table's entry "reference"."""
    options = {"residual": operands.residual, "eps": operands.eps, "plus_one": operands.plus_one}
    exact, new_residual = add_rmsnorm_ref(operands.x, operands.weight, **options)
    if operands.residual is not None:
        h.copy_(new_residual)
    write_rows(exact, operands.quantize, y, scale)
