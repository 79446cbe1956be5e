"""The feed-forward net of a layer: two products on one input, SiLU(gate) * up between them and a third."""

import importlib

import torch
import torch.nn.functional as F
from torch import Tensor

from qbench.runtime.fused import FusedLinears, as_outputs, kernel_arguments
from qbench.runtime.norm import RMSNorm


class FeedForward:
    """down(silu(gate(x)) * up(x)), a call after the other, the gate in torch.

    call     x [..., K] -> [..., K]; norm: of x, before it is read; residual: added to the result
    source   Shazeer 2020, arXiv:2002.05202, eq. 6
    """

    def __init__(self, gate_up: FusedLinears, down: FusedLinears) -> None:
        self.gate_up = gate_up
        self.down = down

    def __call__(self, x: Tensor, norm: RMSNorm | None = None, residual: Tensor | None = None) -> Tensor:
        gate, up = self.gate_up(x, norm)
        (y,) = self.down(self.silu_mul(gate, up), residual=residual)
        return y

    def silu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(gate) * up


class KernelFeedForward(FeedForward):
    """The same by cpu_kernels: one call where they have packed all its weights, else a chain with the same bits."""

    def __init__(self, gate_up: FusedLinears, down: FusedLinears) -> None:
        super().__init__(gate_up, down)
        kernels = importlib.import_module("cpu_kernels")
        self._silu_mul, self._feed_forward = kernels.silu_mul, kernels.feed_forward
        self.groups = (gate_up.group, down.group)
        self.is_one_call = None not in self.groups

    def __call__(self, x: Tensor, norm: RMSNorm | None = None, residual: Tensor | None = None) -> Tensor:
        if not self.is_one_call:
            return super().__call__(x, norm, residual)
        return as_outputs(self._feed_forward(*self.groups, *kernel_arguments(x, norm, residual)), x)

    def silu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        gates, ups = (x.reshape(-1, x.shape[-1]) for x in (gate, up))  # [M, K]
        out = torch.empty(gates.shape)
        self._silu_mul(gates.numpy(), ups.numpy(), out=out.numpy())
        return out.view(gate.shape)
