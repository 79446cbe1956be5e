"""Root-mean-square normalisation."""

import torch.nn.functional as F
from torch import Tensor


class RMSNorm:
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis.

    weight   [K] float32
    source   Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight = weight
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
