"""The product of 16-bit activations and GGUF weights, dequantized in the kernel.

    q8_0   y[m, n] = sum_b d[b, n] * (sum_{k in b} x[m, k] * q[n, k])                       blocks of 32
    q4_k   y[m, n] = sum_g d * scales[g, n] * (sum_{k in g} x[m, k] * q[n, k])              groups of 32
                   - sum_s dmin[s, n] * (sum_{g in s} minima[g, n] * sum_{k in g} x[m, k])  super-blocks of 256
    q6_k   y[m, n] = sum_g d * scales[g, n] * (sum_{k in g} x[m, k] * (q[n, k] - 32))       groups of 16

and bias[n]. Codes and minima are whole and exact in float16 and bfloat16, and so are their products in float32:
nothing is rounded but float32 sums, and the product d * scales.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.dispatch import results_of
from gpu_kernels.gemm.checks import FLOATS, HALVES, check_matrix, check_operands
from gpu_kernels.gemm.gguf_layout import SUPER_BLOCK, KQuantWeight, dequantize_k_ref
from gpu_kernels.gemm.weight_operands import WeightOperands
from gpu_kernels.gemm.words_layout import WordsWeight, unpack_words_ref


@dataclass(frozen=True, slots=True)
class Operands(WeightOperands):
    """weight  as gguf_layout.pack_gguf makes it
    raises  TypeError (dtypes), ValueError (shapes, devices)
    """

    def __post_init__(self) -> None:
        check_matrix("gguf_gemm", "x", self.x, self.weight.num_features)
        activations = ("x", self.x, list(self.x.shape), HALVES)
        bias = ("bias", self.bias, [self.weight.num_rows], FLOATS)
        check_operands("gguf_gemm", activations, bias, *_parts(self.weight))


def dequantize_ref(weight: WordsWeight | KQuantWeight) -> Tensor:
    """weight [N, K] float64"""
    return unpack_words_ref(weight) if isinstance(weight, WordsWeight) else dequantize_k_ref(weight)


def gguf_gemm_ref(x: Tensor, weight: WordsWeight | KQuantWeight, bias: Tensor | None = None) -> Tensor:
    """y [M, N] float64: the oracle.

    x  [M, K] float    bias  [N] float
    """
    y = x.double() @ dequantize_ref(weight).T
    return y if bias is None else y + bias.double()


def gguf_gemm(operands: Operands, impl: str | None = None) -> Tensor:
    """y [M, N] in x's dtype, by the table's first entry for the device or by `impl`."""
    return results_of("gguf_gemm", operands, impl)


def gguf_gemm_reference(operands: Operands, y: Tensor) -> None:
    """Writes the oracle's result into y [M, N]: the table's entry "reference"."""
    y.copy_(gguf_gemm_ref(operands.x, operands.weight, operands.bias))


def _parts(weight: WordsWeight | KQuantWeight) -> list:
    K, N = weight.num_features, weight.num_rows
    if isinstance(weight, WordsWeight):
        return [
            ("codes", weight.codes, [-(-K // 64), N, 32], (torch.int16,)),
            ("scale", weight.scale, [K // 32, N], (torch.float16,)),
        ]
    words = list(weight.codes.shape)
    groups, supers = [K // weight.plane_k, N], [K // SUPER_BLOCK, N]
    return [
        ("codes", weight.codes, words, (torch.int16,)),
        ("high", weight.high, words, (torch.uint8,)),
        ("scales", weight.scales, groups, (torch.uint8, torch.int8)),
        ("minima", weight.minima, groups, (torch.uint8,)),
        ("d", weight.d, supers, (torch.float16,)),
        ("dmin", weight.dmin, supers, (torch.float16,)),
    ]
