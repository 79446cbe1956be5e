"""The product of FP8 activations and FP8 weights (e4m3).

    y[m, n] = x_scale[m] * weight_scale[n] * sum_k x_q[m, k] * weight_q[n, k] + bias[n]

with one scale per token and per channel, or one per tensor; or, with one scale for 128 features of a token and for a
block of 128 channels by 128 features of the weights,

    y[m, n] = sum_b x_scale[m, b] * weight_scale[n // 128, b] * (sum_{k in b} x_q[m, k] * weight_q[n, k]) + bias[n]

The tensor cores of sm_90 keep about 14 bits of a sum of FP8 products, so every 128 features' sum is added to another in
float32 registers, whatever the scales.

source  DeepSeek-AI 2024, DeepSeek-V3, arXiv:2412.19437, section 3.3: blocks of scales, and the 14 bits
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.dispatch import results_of
from gpu_kernels.gemm.checks import FLOATS, check_matrix, check_operands
from gpu_kernels.gemm.code_operands import CastOperands, scale_shape

BLOCK = 128
FP8 = torch.float8_e4m3fn


@dataclass(frozen=True, slots=True)
class Operands(CastOperands):
    """The inputs of one product.

    x_q           [M, K] float8_e4m3fn, any strides
    x_scale       [M] per token or [1] per tensor; with blocks [M, ceil(K / 128)]; float32
    weight_q      [N, K] float8_e4m3fn, any strides
    weight_scale  [N] per channel or [1] per tensor; with blocks [ceil(N / 128), ceil(K / 128)]; float32
    raises        TypeError (dtypes), ValueError (shapes, devices), NotImplementedError (out_dtype)
    """

    def __post_init__(self) -> None:
        x_q, weight_q = self.x_q, self.weight_q
        self.check_out_dtype("fp8_gemm")
        check_matrix("fp8_gemm", "x_q", x_q, weight_q.shape[-1])
        (M, K), N = x_q.shape, weight_q.shape[0]
        num_blocks = -(-K // BLOCK)
        if self.has_blocks:
            scale_shapes = [M, num_blocks], [-(-N // BLOCK), num_blocks]
        else:
            scale_shapes = scale_shape(self.x_scale, M), scale_shape(self.weight_scale, N)
        check_operands(
            "fp8_gemm",
            ("x_q", x_q, [M, K], (FP8,)),
            ("x_scale", self.x_scale, scale_shapes[0], (torch.float32,)),
            ("weight_q", weight_q, [N, K], (FP8,)),
            ("weight_scale", self.weight_scale, scale_shapes[1], (torch.float32,)),
            ("bias", self.bias, [N], FLOATS),
        )


def fp8_gemm_ref(
    x_q: Tensor, x_scale: Tensor, weight_q: Tensor, weight_scale: Tensor, bias: Tensor | None = None
) -> Tensor:
    """y [M, N] float64: the oracle."""
    y = dequantize_x_ref(x_q, x_scale) @ dequantize_weight_ref(weight_q, weight_scale).T
    return y if bias is None else y + bias.double()


def dequantize_x_ref(x_q: Tensor, x_scale: Tensor) -> Tensor:
    """x [M, K] float64"""
    if x_scale.dim() == 1:
        return x_q.double() * x_scale.double()[:, None]
    return x_q.double() * x_scale.double().repeat_interleave(BLOCK, dim=1)[:, : x_q.shape[1]]


def dequantize_weight_ref(weight_q: Tensor, weight_scale: Tensor) -> Tensor:
    """weight [N, K] float64"""
    if weight_scale.dim() == 2:
        weight_scale = weight_scale.repeat_interleave(BLOCK, dim=0)[: weight_q.shape[0]]
    return dequantize_x_ref(weight_q, weight_scale)


def fp8_gemm(operands: Operands, impl: str | None = None) -> Tensor:
    """y [M, N] in out_dtype, by the table's first entry for the device or by `impl`."""
    return results_of("fp8_gemm", operands, impl)


def fp8_gemm_reference(operands: Operands, y: Tensor) -> None:
    """Writes the oracle's result into y [M, N]: the table's entry "reference"."""
    x_scale, weight_scale = operands.scales()
    y.copy_(fp8_gemm_ref(operands.x_q, x_scale, operands.weight_q, weight_scale, operands.bias))
