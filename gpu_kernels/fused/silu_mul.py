"""SiLU of the gate times the up projection, and quantized for the down projection, in one pass.

    y[m, k] = gate[m, k] / (1 + exp(-gate[m, k])) * up[m, k]                    float32

and y rounded to the inputs' type, or int8 or FP8 codes with one scale per token (row_codes.py).

source  Shazeer 2020, arXiv:2002.05202, eq. 6 (SwiGLU)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.dispatch import results_of
from gpu_kernels.fused.row_codes import check_quantize, empty_rows, write_rows

IN_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_K = 32768  # where rows are quantized they are held in registers: 32 a thread of 1024


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of one call.

    gate, up  [M, K] float16, bfloat16 or float32, any strides: two halves of one product's result, say
    quantize  None, "int8" or "fp8" (e4m3), which take K <= MAX_K
    raises    TypeError (dtypes), ValueError (shapes, devices), NotImplementedError (K, quantize)
    """

    gate: Tensor
    up: Tensor
    quantize: str | None = None

    def __post_init__(self) -> None:
        gate, up, quantize = self.gate, self.up, self.quantize
        check_quantize("silu_mul", quantize)
        if gate.dtype not in IN_DTYPES or up.dtype != gate.dtype:
            got = f"gate {gate.dtype} and up {up.dtype}"
            raise TypeError(f"silu_mul: got {got}, expected one of {' or '.join(map(str, IN_DTYPES))} for both")
        if gate.dim() != 2 or up.shape != gate.shape or (quantize and not gate.shape[1]):
            got = f"gate {list(gate.shape)} and up {list(up.shape)}"
            raise ValueError(f"silu_mul: got {got}, expected [M, K] alike, with K of 1 or more where it is quantized")
        if up.device != gate.device:
            raise ValueError(f"silu_mul: got up on {up.device} and gate on {gate.device}, expected one device")
        if quantize and gate.shape[1] > MAX_K:
            raise NotImplementedError(f"silu_mul: got K = {gate.shape[1]} to quantize, expected at most {MAX_K}")

    def empty(self) -> tuple[Tensor, Tensor | None]:
        """(y [M, K], scale [M] or None), to be written"""
        return empty_rows(self.gate, self.quantize)


def silu_mul_ref(gate: Tensor, up: Tensor) -> Tensor:
    """y [M, K] float64: the oracle."""
    return gate.double() / (1 + (-gate.double()).exp()) * up.double()


def silu_mul(
    gate: Tensor, up: Tensor, *, quantize: str | None = None, impl: str | None = None
) -> tuple[Tensor, Tensor | None]:
    """(y [M, K] in the inputs' type or its codes, scale [M] float32 or None).

    The arguments are those of `Operands`; impl names an entry of the table other than the first.
    """
    operands = Operands(gate, up, quantize)
    return results_of("silu_mul", operands, impl)


def silu_mul_reference(operands: Operands, y: Tensor, scale: Tensor | None) -> None:
    """Writes the oracle's result into y and scale: the table's entry "reference"."""
    write_rows(silu_mul_ref(operands.gate, operands.up), operands.quantize, y, scale)
