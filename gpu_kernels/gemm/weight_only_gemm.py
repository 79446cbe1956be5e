"""The products of 16-bit activations and weights of 4 or 8 bits, scaled per group or channel.

    weight[n, k] = scale[g, n] * (q[n, k] - zero_point[g, n])           g the group of feature k
    y[m, n]      = sum_g scale[g, n] * (sum_{k in g} x[m, k] * (q[n, k] - zero_point[g, n])) + bias[n]

The scales are factored out of each group's sum, so the weights that meet the activations are whole numbers in
[-15, 15] or [-255, 255], exact in float16 and bfloat16, and so are their products in float32: nothing is rounded but
float32 sums.

source  Frantar et al. 2022, GPTQ, arXiv:2210.17323, and Lin et al. 2023, AWQ, arXiv:2306.00978: grouped 4-bit weights
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.dispatch import results_of
from gpu_kernels.gemm.checks import FLOATS, HALVES, check_matrix, check_operands
from gpu_kernels.gemm.weight_operands import WeightOperands
from gpu_kernels.gemm.words_layout import GROUP_SIZES, PLANE_K, SCALE_DTYPES, WordsWeight, block_k, unpack_words_ref


@dataclass(frozen=True, slots=True)
class Operands(WeightOperands):
    """weight  as words_layout.pack_words makes it, of 4 or 8 bits
    raises  TypeError (dtypes), ValueError (shapes, strides, devices), NotImplementedError (groups)
    """

    weight: WordsWeight

    def __post_init__(self) -> None:
        x, weight = self.x, self.weight
        op = op_of(weight)
        check_matrix(op, "x", x, weight.num_features)
        if weight.group_size not in (None, *(size for size in GROUP_SIZES if size <= block_k(weight.bits))):
            raise NotImplementedError(f"{op}: got groups of {weight.group_size}; pack_words makes those that are there")
        (M, K), N, G = x.shape, weight.num_rows, weight.num_groups
        check_operands(
            op,
            ("x", x, [M, K], HALVES),
            ("codes", weight.codes, [-(-K // block_k(weight.bits)), N, PLANE_K], (torch.int16,)),
            ("scale", weight.scale, [G, N], SCALE_DTYPES),
            ("zero_point", weight.zero_point, [G, N], (torch.int8,)),
            ("order", weight.order, [K], (torch.int32,)),
            ("bias", self.bias, [N], FLOATS),
        )
        for name in ("codes", "scale", "zero_point", "order"):
            if (tensor := getattr(weight, name)) is not None and not tensor.is_contiguous():
                raise ValueError(f"{op}: got {name} with strides {tensor.stride()}, expected contiguous")


def op_of(weight: WordsWeight) -> str:
    return f"w{weight.bits}a16_gemm"


def weight_only_gemm_ref(x: Tensor, weight: WordsWeight, bias: Tensor | None = None) -> Tensor:
    """y [M, N] float64: the oracle.

    x  [M, K] float    bias  [N] float
    """
    y = x.double() @ unpack_words_ref(weight).T
    return y if bias is None else y + bias.double()


def w4a16_gemm(operands: Operands, impl: str | None = None) -> Tensor:
    """y [M, N] in x's dtype, by the table's first entry for the device or by `impl`.

    raises  ValueError for a weight of other than 4 bits
    """
    return _product(4, operands, impl)


def w8a16_gemm(operands: Operands, impl: str | None = None) -> Tensor:
    """y [M, N] in x's dtype: w4a16_gemm with a weight of 8 bits."""
    return _product(8, operands, impl)


def _product(bits: int, operands: Operands, impl: str | None) -> Tensor:
    if operands.weight.bits != bits:
        raise ValueError(f"w{bits}a16_gemm: got a weight of {operands.weight.bits} bits, expected {bits}")
    return results_of(op_of(operands.weight), operands, impl)


def weight_only_gemm_reference(operands: Operands, y: Tensor) -> None:
    """Writes the oracle's result into y [M, N]: the table's entry "reference"."""
    y.copy_(weight_only_gemm_ref(operands.x, operands.weight, operands.bias))
