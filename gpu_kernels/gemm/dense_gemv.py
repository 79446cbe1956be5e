"""The product of one token in 16 bits and weights in 16 bits, which reads each weight once: y = x @ weight.T + bias."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.dispatch import results_of
from gpu_kernels.gemm.checks import FLOATS, HALVES, check_matrix, check_operands


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of one product.

    x       [1, K] float16 or bfloat16, the last axis dense
    weight  [N, K] of x's type, the last axis dense
    bias    [N] float16, bfloat16 or float32, dense
    raises  TypeError (dtypes), ValueError (shapes, strides, devices)
    """

    x: Tensor
    weight: Tensor
    bias: Tensor | None = None

    def __post_init__(self) -> None:
        op, x, weight = "dense_gemv", self.x, self.weight
        check_matrix(op, "weight", weight, weight.shape[-1])
        (N, K), dtype = weight.shape, x.dtype
        check_operands(
            op, ("x", x, [1, K], HALVES), ("weight", weight, [N, K], (dtype,)), ("bias", self.bias, [N], FLOATS)
        )
        for name, tensor in (("x", x), ("weight", weight), ("bias", self.bias)):
            if tensor is not None and tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
                raise ValueError(f"{op}: got {name} with strides {tensor.stride()}, expected 1 in the end")

    def empty(self) -> Tensor:
        """y [1, N] in x's dtype, to be written"""
        return torch.empty(1, len(self.weight), dtype=self.x.dtype, device=self.x.device)


def dense_gemv_ref(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y [1, N] float64: the oracle."""
    y = x.double() @ weight.double().T
    return y if bias is None else y + bias.double()


def dense_gemv(operands: Operands, impl: str | None = None) -> Tensor:
    """y [1, N] in x's dtype, by the table's first entry for the device or by `impl`."""
    return results_of("dense_gemv", operands, impl)


def dense_gemv_reference(operands: Operands, y: Tensor) -> None:
    """Writes the oracle's result into y: the table's entry "reference"."""
    y.copy_(dense_gemv_ref(operands.x, operands.weight, operands.bias))
