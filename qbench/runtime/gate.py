"""SiLU(gate) * up: what stands between the two products of a feed-forward net."""

import importlib
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

SiluMul = Callable[[Tensor, Tensor], Tensor]  # gate, up [..., K] -> [..., K]


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """In torch. source  Shazeer 2020, arXiv:2002.05202, eq. 6"""
    return F.silu(gate) * up


def kernel_silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """The same by cpu_kernels, bit for bit what a fused feed-forward net does."""
    gates, ups = (x.reshape(-1, x.shape[-1]) for x in (gate, up))  # [M, K]
    out = torch.empty(gates.shape)
    importlib.import_module("cpu_kernels").silu_mul(gates.numpy(), ups.numpy(), out=out.numpy())
    return out.view(gate.shape)
