"""The product of int8 activations and int8 weights, scaled per token and per channel.

    acc[m, n] = sum_k x_q[m, k] * weight_q[n, k]                          int32, exact
    y[m, n]   = acc[m, n] * x_scale[m] * weight_scale[n] + bias[n]        float32, then rounded to out_dtype

One scale for a whole tensor is that scale for every token or channel.

source  Dettmers et al. 2022, arXiv:2208.07339, vector-wise quantization: row and column scales factor out of the sum
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.dispatch import results_of
from gpu_kernels.gemm.checks import FLOATS, check_operands
from gpu_kernels.gemm.code_operands import CastOperands, scale_shape

# The largest product of two int8 is (-128)**2, and K of them must fit int32.
MAX_K = (2**31 - 1) // 128**2


@dataclass(frozen=True, slots=True)
class Operands(CastOperands):
    """The inputs of one product.

    x_q           [M, K] int8, any strides; K <= MAX_K
    x_scale       [M] float32, or [1] per tensor
    weight_q      [N, K] int8, any strides
    weight_scale  [N] float32, or [1] per tensor
    raises        TypeError (dtypes), ValueError (shapes, devices), NotImplementedError (out_dtype, K)
    """

    def __post_init__(self) -> None:
        x_q, weight_q = self.x_q, self.weight_q
        self.check_out_dtype("w8a8_gemm")
        if x_q.dim() != 2 or weight_q.dim() != 2 or x_q.shape[1] != weight_q.shape[1]:
            shapes = f"x_q {list(x_q.shape)} and weight_q {list(weight_q.shape)}"
            raise ValueError(f"w8a8_gemm: got {shapes}, expected [M, K] and [N, K]")
        (M, K), N = x_q.shape, weight_q.shape[0]
        check_features("w8a8_gemm", K)
        check_operands(
            "w8a8_gemm",
            ("x_q", x_q, [M, K], (torch.int8,)),
            ("x_scale", self.x_scale, scale_shape(self.x_scale, M), (torch.float32,)),
            ("weight_q", weight_q, [N, K], (torch.int8,)),
            ("weight_scale", self.weight_scale, scale_shape(self.weight_scale, N), (torch.float32,)),
            ("bias", self.bias, [N], FLOATS),
        )


def check_features(op: str, K: int) -> None:
    if K > MAX_K:
        raise NotImplementedError(f"{op}: got K = {K}, expected at most {MAX_K}, past which int32 can overflow")


def w8a8_gemm_ref(
    x_q: Tensor, x_scale: Tensor, weight_q: Tensor, weight_scale: Tensor, bias: Tensor | None = None
) -> Tensor:
    """y [M, N] float64: the oracle. float64 holds every partial sum exactly (they are integers below 2**31)."""
    acc = x_q.double() @ weight_q.double().T  # [M, N]
    y = acc * x_scale.double()[:, None] * weight_scale.double()[None, :]
    return y if bias is None else y + bias.double()


def w8a8_gemm(operands: Operands, impl: str | None = None) -> Tensor:
    """y [M, N] in out_dtype, by the table's first entry for the device or by `impl`."""
    return results_of("w8a8_gemm", operands, impl)


def w8a8_gemm_reference(operands: Operands, y: Tensor) -> None:
    """Writes the oracle's result into y [M, N]: the table's entry "reference"."""
    x_scale, weight_scale = operands.scales()
    y.copy_(w8a8_gemm_ref(operands.x_q, x_scale, operands.weight_q, weight_scale, operands.bias))
