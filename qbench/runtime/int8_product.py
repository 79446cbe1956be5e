"""The product of int8 matrices, exact in int32."""

import torch
import torch.nn.functional as F
from torch import Tensor

# Products of two codes are at most 2**14, so a float32 sum of this many is an integer up to 2**24, thus exact.
EXACT_IN_FLOAT32 = 1 << 10


def int8_product_ref(x: Tensor, weight: Tensor) -> Tensor:
    """x [M, K] int8, weight [N, K] int8 -> x @ weight.T [M, N] int32, by float32 products of few enough features."""
    y = x.new_zeros((x.shape[0], weight.shape[0]), dtype=torch.int32)
    for x_part, weight_part in zip(x.split(EXACT_IN_FLOAT32, 1), weight.split(EXACT_IN_FLOAT32, 1), strict=True):
        y += F.linear(x_part.float(), weight_part.float()).int()
    return y


def int8_product_int_mm(x: Tensor, weight: Tensor) -> Tensor:
    """The same by torch's int8 product."""
    if x.shape[1] == 1:  # torch._int_mm takes the strides of one column for those of many: other numbers
        return int8_product_ref(x, weight)
    return torch._int_mm(x, weight.T)


def int8_product_name() -> str:
    """The fastest of PRODUCTS on this machine's CPU: without AVX-512 torch._int_mm is a plain loop."""
    return "int_mm" if "AVX512" in torch.backends.cpu.get_cpu_capability() else "float32"


PRODUCTS = {"int_mm": int8_product_int_mm, "float32": int8_product_ref}
