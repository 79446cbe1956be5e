"""Linears whose activations are int8, too: W8A8 and LLM.int8()."""

import importlib

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.arrays import as_tensor
from qbench.runtime.int8_product import PRODUCTS, int8_product_name
from quant.formats import Int8Format, get_format
from quant.formats.int8 import QMAX, QMIN, SMALLEST_SCALE
from quant.formats.llm_int8 import NO_FEATURES, OUTLIER_THRESHOLD, PER_CODE
from quant.qtensor import QTensor

# The factor by which bitsandbytes turns the integer sums into floats, its digits included; 1 / 127**2.
PER_PRODUCT = 6.200124e-05


class Int8Linear:
    """y = (x_q @ q.T) * x_scale * weight_scale: an int32 product of codes between two roundings.

    raises   InputError for static activations without their scale
    """

    def __init__(self, qtensor: QTensor, product: str | None = None) -> None:
        fmt = get_format(qtensor.format)
        assert isinstance(fmt, Int8Format)
        self.inputs = fmt.inputs
        self.weight = as_tensor(qtensor.parts["weight"])  # [N, K] int8
        self.weight_scale = as_tensor(qtensor.parts["weight_scale"])[:, 0]  # [N]
        self.input_scale: Tensor | None = None
        if fmt.inputs == "static":
            no_tokens = np.empty((0, qtensor.shape[1]), dtype=np.float32)
            self.input_scale = as_tensor(fmt.input_scale(no_tokens, qtensor.shared))  # [1, 1]
        self.size_bytes = self.weight.nbytes + self.weight_scale.nbytes
        product = product or int8_product_name()
        self.product = PRODUCTS[product]
        self.name = f"torch-w8a8[{product}]"

    def __call__(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])  # [M, K]
        scale = self._scale(tokens)  # [M, 1] or [1, 1]
        q = (tokens / scale).round_().clamp_(QMIN, QMAX).nan_to_num_(nan=0).to(torch.int8)
        y = self.product(q, self.weight).float() * self.weight_scale  # [M, N]
        return y.mul_(scale).view(*x.shape[:-1], -1)

    def rows(self, index: np.ndarray) -> Tensor:
        some = torch.from_numpy(index)
        return self.weight_scale[some, None] * self.weight[some].float()

    def _scale(self, tokens: Tensor) -> Tensor:
        """`Int8Format.input_scale`, whose NaN for a token with NaN makes its outputs NaN, too"""
        if self.input_scale is not None:
            return self.input_scale.where(~tokens.isnan().any(1, keepdim=True), torch.nan)
        magnitudes = tokens.abs()
        absmax = magnitudes.amax(1, keepdim=True) if self.inputs == "per_token" else magnitudes.amax().view(1, 1)
        return (absmax / QMAX).clamp_(min=float(SMALLEST_SCALE))


class PackedLlmInt8Linear:
    """LlmInt8Linear by cpu_kernels: its integer sums, and its roundings but for the order of the outliers' sums."""

    def __init__(self, qtensor: QTensor) -> None:
        kernels = importlib.import_module("cpu_kernels")
        features = np.ascontiguousarray(qtensor.shared.get("outlier_features", NO_FEATURES), dtype=np.int32)
        no_weight = np.empty((qtensor.shape[0], 0), dtype=np.float16)
        parts = (qtensor.parts["weight"], qtensor.parts["SCB"], qtensor.parts.get("outlier_weight", no_weight))
        self.packed = kernels.PackedLlmInt8(*map(np.ascontiguousarray, parts), features)
        self.size_bytes = self.packed.nbytes
        self.name = f"cpu-llm-int8[{kernels.chosen_isa('linear_llm_int8')}]"

    def __call__(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1]).contiguous()  # [M, K]
        y = torch.from_numpy(self.packed.matmul(tokens.numpy()))  # [M, N]
        return y.view(*x.shape[:-1], -1)

    def rows(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(self.packed.rows(np.ascontiguousarray(index)))


def packed_llm_int8_bytes(format_name: str, shape: tuple[int, ...], stored_bytes: int) -> int:
    """What PackedLlmInt8 holds: rows in panels of 16 of 64 features, and the known features with their weights."""
    num_rows, row_size = shape
    stored_features = stored_bytes - num_rows * (row_size + 4)
    num_features = stored_features // (2 * num_rows + 4)  # their float16 weights and int32 numbers
    rows, columns = -(-num_rows // 16) * 16, -(-row_size // 64) * 64
    return rows * (columns + 4 + 2 * num_features) + 4 * num_features + row_size


class LlmInt8Linear:
    """Int8 for features below the threshold in all tokens of the call, float32 for the others, and their sum.

    Features that calibration knew as outliers are among the others always, with float16 weights of their own.

    source   Dettmers et al. 2022, arXiv:2208.07339, eq. 8; the order of roundings is that of bitsandbytes
    """

    def __init__(self, qtensor: QTensor, product: str | None = None) -> None:
        self.weight = as_tensor(qtensor.parts["weight"])  # [N, K] int8
        self.weight_absmax = as_tensor(qtensor.parts["SCB"])  # [N]
        self.known = as_tensor(qtensor.shared.get("outlier_features", NO_FEATURES)).long()  # [F]
        no_weight = np.empty((qtensor.shape[0], 0), dtype=np.float16)
        self.outlier_weight = as_tensor(qtensor.parts.get("outlier_weight", no_weight))  # [N, F] float16
        self.size_bytes = qtensor.size_bytes
        product = product or int8_product_name()
        self.product = PRODUCTS[product]
        self.name = f"torch-llm-int8[{product}]"

    def __call__(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])  # [M, K]
        half = tokens.half().float()
        half[:, self.known] = 0
        outliers = half.abs() >= OUTLIER_THRESHOLD  # [M, K]
        features = outliers.any(0).nonzero()[:, 0]  # those of this call, beside the known
        inliers = half.masked_fill_(outliers, 0)
        absmax = inliers.abs().amax(1, keepdim=True)  # [M, 1]
        q = (inliers * (127 / absmax)).round_().nan_to_num_(nan=0).to(torch.int8)  # 127 / 0 = inf, and 0 inf = NaN
        q[:, features] = 0
        y = self.product(q, self.weight) * (absmax * self.weight_absmax) * PER_PRODUCT  # [M, N]
        if len(features):
            weight = self.weight[:, features].float() * self.weight_absmax[:, None] * float(PER_CODE)  # [N, features]
            y.addmm_(tokens[:, features], weight.T)
        if len(self.known):
            y.addmm_(tokens[:, self.known], self.outlier_weight.float().T)
        return y.view(*x.shape[:-1], -1)

    def rows(self, index: np.ndarray) -> Tensor:
        some = torch.from_numpy(index)
        weight = self.weight[some].float() * self.weight_absmax[some, None] * float(PER_CODE)  # [n, K]
        weight[:, self.known] = self.outlier_weight[some].float()
        return weight
