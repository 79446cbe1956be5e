"""The int8 product with its outlier features in 16 bits, in one launch: LLM.int8().

    acc[m, n] = sum_k x_q[m, k] * weight_q[n, k]                                          int32, exact
    y[m, n]   = acc[m, n] * x_scale[m] * weight_scale[n]
              + sum_f x[m, outlier_features[f]] * outlier_weight[n, f] + bias[n]          float32

x_q is 0 at the outlier features, so weight_q may hold anything there.

source  Dettmers et al. 2022, arXiv:2208.07339, section 3.2: mixed-precision decomposition
"""

import torch
from torch import Tensor

from gpu_kernels.dispatch import implementation
from gpu_kernels.products.checks import FLOATS, HALVES, check_matrix, check_operands
from gpu_kernels.products.split_k import Workspace
from gpu_kernels.products.w8a8_gemm import MAX_K, w8a8_gemm_ref


def llm_int8_gemm_ref(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    x: Tensor,
    outlier_features: Tensor,
    outlier_weight: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """y [M, N] float64: the oracle."""
    inliers = w8a8_gemm_ref(x_q, x_scale, weight_q, weight_scale, bias)
    return inliers + x.double()[:, outlier_features.long()] @ outlier_weight.double().T


def llm_int8_gemm(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    x: Tensor,
    outlier_features: Tensor,
    outlier_weight: Tensor,
    *,
    bias: Tensor | None = None,
    workspace: Workspace | None = None,
    impl: str | None = None,
) -> Tensor:
    """y [M, N] in x's dtype, by the implementation that `dispatch.IMPLEMENTATIONS` lists first for the device.

    x_q               [M, K] int8, any strides; K <= w8a8_gemm.MAX_K
    x_scale           [M] float32
    weight_q          [N, K] int8, any strides
    weight_scale      [N] float32
    x                 [M, K] float16 or bfloat16, any strides; only its outlier features are read
    outlier_features  [F] int32 in [0, K); F may be 0
    outlier_weight    [N, F] x's dtype, any strides
    bias              [N] float16, bfloat16 or float32
    workspace         None: allocated, and zeroed by one launch more, where the product is split over K
    impl              the name of another entry of the table
    raises            TypeError (dtypes), ValueError (shapes, devices), NotImplementedError (K, device, impl)
    """
    check_matrix("llm_int8_gemm", "x", x, x_q.shape[-1])
    (M, K), N, F = x.shape, weight_q.shape[0], outlier_features.numel()
    if K > MAX_K:
        raise NotImplementedError(
            f"llm_int8_gemm: got K = {K}, expected at most {MAX_K}, past which int32 can overflow"
        )
    check_operands(
        "llm_int8_gemm",
        x.device,
        [
            ("x", x, [M, K], HALVES),
            ("x_q", x_q, [M, K], (torch.int8,)),
            ("x_scale", x_scale, [M], (torch.float32,)),
            ("weight_q", weight_q, [N, K], (torch.int8,)),
            ("weight_scale", weight_scale, [N], (torch.float32,)),
            ("outlier_features", outlier_features, [F], (torch.int32,)),
            ("outlier_weight", outlier_weight, [N, F], (x.dtype,)),
            ("bias", bias, [N], FLOATS),
        ],
    )
    run = implementation("llm_int8_gemm", x.device.type, impl)
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)  # [M, N]
    if y.numel():
        run(x_q, x_scale, weight_q, weight_scale, x, outlier_features, outlier_weight, bias, y, workspace)
    return y


def llm_int8_gemm_reference(
    x_q: Tensor,
    x_scale: Tensor,
    weight_q: Tensor,
    weight_scale: Tensor,
    x: Tensor,
    outlier_features: Tensor,
    outlier_weight: Tensor,
    bias: Tensor | None,
    y: Tensor,
    workspace: Workspace | None,
) -> None:
    """Writes the oracle's result into y [M, N]: the table's entry "reference"."""
    y.copy_(llm_int8_gemm_ref(x_q, x_scale, weight_q, weight_scale, x, outlier_features, outlier_weight, bias))
