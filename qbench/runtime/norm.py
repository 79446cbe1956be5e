"""Root-mean-square normalisation."""

import importlib

import torch
import torch.nn.functional as F
from torch import Tensor


class RMSNorm:
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis, in torch.

    weight   [K] float32
    source   Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight = weight
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class KernelRMSNorm(RMSNorm):
    """The same by cpu_kernels, bit for bit what a product does to its input where it takes the norm along."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__(weight, eps)
        self.array = weight.numpy()
        self._rms_norm = importlib.import_module("cpu_kernels").rms_norm

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])  # [M, K]
        out = torch.empty(rows.shape)
        self._rms_norm(rows.numpy(), self.array, self.eps, out=out.numpy())
        return out.view(x.shape)
