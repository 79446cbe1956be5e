"""Normalisation of a stream or of heads: root mean square, or mean and deviation."""

import importlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


class Norm:
    """A function of the last axis, in torch.

    weight   [K] float32
    array    the weight where a product of cpu_kernels can take the norm along; None: it comes before the product
    """

    array: np.ndarray | None = None

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight = weight
        self.eps = eps

    @property
    def size_bytes(self) -> int:
        return self.weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class RMSNorm(Norm):
    """x / sqrt(mean(x^2) + eps) * weight. source  Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4"""

    def __call__(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class KernelRMSNorm(RMSNorm):
    """The same by cpu_kernels, bit for bit as in a product that applies the norm to its input."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__(weight, eps)
        self.array = weight.numpy()
        self._rms_norm = importlib.import_module("cpu_kernels").rms_norm

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).contiguous()  # [M, K]
        out = torch.empty(rows.shape)
        self._rms_norm(rows.numpy(), self.array, self.eps, out=out.numpy())
        return out.view(x.shape)


class LayerNorm(Norm):
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias. source  Ba et al. 2016, arXiv:1607.06450, eq. 3"""

    def __init__(self, weight: Tensor, bias: Tensor, eps: float) -> None:
        super().__init__(weight, eps)
        self.bias = bias

    @property
    def size_bytes(self) -> int:
        return self.weight.nbytes + self.bias.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
