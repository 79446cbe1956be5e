"""LLM.int8() in plain torch, several times, each with its own copy of the weight."""

import numpy as np
import torch
from torch import Tensor

from qbench.kernels.peers.torch import refuse_saturating_int_mm
from quant.formats.llm_int8 import OUTLIER_THRESHOLD, PER_CODE
from quant.qtensor import QTensor

# The factor by which bitsandbytes turns the integer sums into floats, its digits included; 1 / 127**2.
PER_PRODUCT = 6.200124e-05


class TorchLlmInt8Linears:
    """Int8 products for features below the threshold in all tokens of the call, float32 for the others, and their sum.

    qtensor  without features that calibration knew as outliers; x [M, K] float32

    raises   Absent if torch._int_mm saturates here
    source   Dettmers et al. 2022, arXiv:2208.07339, eq. 8; the order of roundings is that of bitsandbytes
    """

    how = "_int_mm"

    def __init__(self, qtensor: QTensor, x: np.ndarray, copies: int) -> None:
        assert "outlier_features" not in qtensor.shared
        self.weights = [torch.from_numpy(qtensor.parts["weight"]).clone() for _ in range(copies)]  # [N, K] int8
        self.weight_absmax = torch.from_numpy(qtensor.parts["SCB"])  # [N]
        self.x = torch.from_numpy(x)
        self.y = torch.empty(0)
        refuse_saturating_int_mm()

    def run(self) -> None:
        for weight in self.weights:
            self.y = self.multiply(weight)

    def multiply(self, weight: Tensor) -> Tensor:
        half = self.x.half().float()
        outliers = half.abs() >= OUTLIER_THRESHOLD  # [M, K]
        features = outliers.any(0).nonzero()[:, 0]
        inliers = half.masked_fill_(outliers, 0)
        absmax = inliers.abs().amax(1, keepdim=True)  # [M, 1]
        q = (inliers * (127 / absmax)).round_().nan_to_num_(nan=0).to(torch.int8)  # 127 / 0 = inf, and 0 inf = NaN
        q[:, features] = 0
        y = torch._int_mm(q, weight.T) * (absmax * self.weight_absmax) * PER_PRODUCT  # [M, N]  # pyright: ignore[reportPrivateImportUsage]
        if len(features):
            columns = weight[:, features].float() * self.weight_absmax[:, None] * float(PER_CODE)  # [N, features]
            y.addmm_(self.x[:, features], columns.T)
        return y

    def output(self) -> np.ndarray:
        return self.y.numpy()
