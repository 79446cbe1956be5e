"""The int8 product with its outlier features in 16 bits, in one launch: LLM.int8().

    acc[m, n] = sum_k x_q[m, k] * weight_q[n, k]                                          int32, exact
    y[m, n]   = acc[m, n] * x_scale[m] * weight_scale[n]
              + sum_f x[m, outlier_features[f]] * outlier_weight[n, f] + bias[n]          float32

x_q is 0 at the outlier features, so weight_q may hold anything there.

source  Dettmers et al. 2022, arXiv:2208.07339, section 3.2: mixed-precision decomposition
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.dispatch import results_of
from gpu_kernels.gemm.checks import FLOATS, HALVES, check_matrix, check_operands
from gpu_kernels.gemm.code_operands import CodeOperands
from gpu_kernels.gemm.w8a8_gemm import check_features, w8a8_gemm_ref


@dataclass(frozen=True, slots=True)
class Operands(CodeOperands):
    """The inputs of one product.

    x_q               [M, K] int8, any strides; K <= w8a8_gemm.MAX_K
    x_scale           [M] float32
    weight_q          [N, K] int8, any strides
    weight_scale      [N] float32
    x                 [M, K] float16 or bfloat16, any strides; only its outlier features are read
    outlier_features  [F] int32 in [0, K); F may be 0
    outlier_weight    [N, F] x's dtype, any strides
    bias              [N] float16, bfloat16 or float32
    workspace         None: allocated, and zeroed by one launch more, where the product is split over K
    raises            TypeError (dtypes), ValueError (shapes, devices), NotImplementedError (K)
    """

    x: Tensor
    outlier_features: Tensor
    outlier_weight: Tensor

    @property
    def result_dtype(self) -> torch.dtype:
        return self.x.dtype

    def __post_init__(self) -> None:
        x = self.x
        check_matrix("llm_int8_gemm", "x", x, self.x_q.shape[-1])
        (M, K), N, F = x.shape, self.weight_q.shape[0], self.outlier_features.numel()
        check_features("llm_int8_gemm", K)
        check_operands(
            "llm_int8_gemm",
            ("x", x, [M, K], HALVES),
            ("x_q", self.x_q, [M, K], (torch.int8,)),
            ("x_scale", self.x_scale, [M], (torch.float32,)),
            ("weight_q", self.weight_q, [N, K], (torch.int8,)),
            ("weight_scale", self.weight_scale, [N], (torch.float32,)),
            ("outlier_features", self.outlier_features, [F], (torch.int32,)),
            ("outlier_weight", self.outlier_weight, [N, F], (x.dtype,)),
            ("bias", self.bias, [N], FLOATS),
        )


def llm_int8_gemm_ref(operands: Operands) -> Tensor:
    """y [M, N] float64: the oracle."""
    inliers = w8a8_gemm_ref(operands.x_q, operands.x_scale, operands.weight_q, operands.weight_scale, operands.bias)
    outliers = operands.x.double()[:, operands.outlier_features.long()]  # [M, F]
    return inliers + outliers @ operands.outlier_weight.double().T


def llm_int8_gemm(operands: Operands, impl: str | None = None) -> Tensor:
    """y [M, N] in x's dtype, by the table's first entry for the device or by `impl`."""
    return results_of("llm_int8_gemm", operands, impl)


def llm_int8_gemm_reference(operands: Operands, y: Tensor) -> None:
    """Writes the oracle's result into y [M, N]: the table's entry "reference"."""
    y.copy_(llm_int8_gemm_ref(operands))
