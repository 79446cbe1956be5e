"""The products of 16-bit activations and weights of 4 or 8 bits, scaled per group or channel.

    weight[n, k] = scale[g, n] * (q[n, k] - zero_point[g, n])           g the group of feature k
    y[m, n]      = sum_g scale[g, n] * (sum_{k in g} x[m, k] * (q[n, k] - zero_point[g, n])) + bias[n]

The scales are factored out of each group's sum, so the weights that meet the activations are whole numbers in
[-15, 15] or [-255, 255], exact in float16 and bfloat16, and so are their products in float32: nothing is rounded but
float32 sums.

source  Frantar et al. 2022, GPTQ, arXiv:2210.17323, and Lin et al. 2023, AWQ, arXiv:2306.00978: grouped 4-bit weights
"""

import torch
from torch import Tensor

from gpu_kernels.dispatch import implementation
from gpu_kernels.products.checks import FLOATS, HALVES, check_matrix, check_operands
from gpu_kernels.products.split_k import Workspace
from gpu_kernels.products.words_layout import GROUP_SIZES, PLANE_K, SCALE_DTYPES, WordsWeight, block_k, unpack_words_ref


def weight_only_gemm_ref(x: Tensor, weight: WordsWeight, bias: Tensor | None = None) -> Tensor:
    """y [M, N] float64: the oracle.

    x  [M, K] float    bias  [N] float
    """
    y = x.double() @ unpack_words_ref(weight).T
    return y if bias is None else y + bias.double()


def w4a16_gemm(
    x: Tensor,
    weight: WordsWeight,
    *,
    bias: Tensor | None = None,
    workspace: Workspace | None = None,
    impl: str | None = None,
) -> Tensor:
    """y [M, N] in x's dtype, by the implementation that `dispatch.IMPLEMENTATIONS` lists first for the device.

    x          [M, K] float16 or bfloat16, any strides
    weight     of 4 bits, as words_layout.pack_words makes it
    bias       [N] float16, bfloat16 or float32
    workspace  None: allocated, and zeroed by one launch more, where the product is split over K
    impl       the name of another entry of the table
    raises     TypeError (dtypes), ValueError (shapes, devices, bits),
               NotImplementedError (device, architecture, impl)
    """
    return _product("w4a16_gemm", 4, x, weight, bias, workspace, impl)


def w8a16_gemm(
    x: Tensor,
    weight: WordsWeight,
    *,
    bias: Tensor | None = None,
    workspace: Workspace | None = None,
    impl: str | None = None,
) -> Tensor:
    """y [M, N] in x's dtype: w4a16_gemm with a weight of 8 bits."""
    return _product("w8a16_gemm", 8, x, weight, bias, workspace, impl)


def weight_only_gemm_reference(
    x: Tensor, weight: WordsWeight, bias: Tensor | None, y: Tensor, workspace: Workspace | None
) -> None:
    """Writes the oracle's result into y [M, N]: the table's entry "reference"."""
    y.copy_(weight_only_gemm_ref(x, weight, bias))


def _product(
    op: str,
    bits: int,
    x: Tensor,
    weight: WordsWeight,
    bias: Tensor | None,
    workspace: Workspace | None,
    impl: str | None,
) -> Tensor:
    if weight.bits != bits:
        raise ValueError(f"{op}: got a weight of {weight.bits} bits, expected {bits}")
    _check(op, x, weight, bias)
    run = implementation(op, x.device.type, impl)
    y = torch.empty(x.shape[0], weight.num_rows, dtype=x.dtype, device=x.device)  # [M, N]
    if y.numel():
        run(x, weight, None if bias is None else bias.contiguous(), y, workspace)
    return y


def _check(op: str, x: Tensor, weight: WordsWeight, bias: Tensor | None) -> None:
    check_matrix(op, "x", x, weight.num_features)
    if weight.group_size not in (None, *(size for size in GROUP_SIZES if size <= block_k(weight.bits))):
        raise NotImplementedError(f"{op}: got groups of {weight.group_size}; pack_words makes those that are there")
    (M, K), N, G = x.shape, weight.num_rows, weight.num_groups
    check_operands(
        op,
        x.device,
        [
            ("x", x, [M, K], HALVES),
            ("codes", weight.codes, [-(-K // block_k(weight.bits)), N, PLANE_K], (torch.int16,)),
            ("scale", weight.scale, [G, N], SCALE_DTYPES),
            ("zero_point", weight.zero_point, [G, N], (torch.int8,)),
            ("order", weight.order, [K], (torch.int32,)),
            ("bias", bias, [N], FLOATS),
        ],
    )
    for name in ("codes", "scale", "zero_point", "order"):
        if (tensor := getattr(weight, name)) is not None and not tensor.is_contiguous():
            raise ValueError(f"{op}: got {name} with strides {tensor.stride()}, expected contiguous")
