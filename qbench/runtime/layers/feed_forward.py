"""The feed-forward net of a layer: into a wider space, a function there, and back."""

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

from qbench.runtime.layers.activations import ACTIVATIONS, turned_online
from qbench.runtime.layers.fused import FusedLinears, add_output, as_outputs, kernel_arguments
from qbench.runtime.layers.norm import Norm


class FeedForward:
    """down(f(gate(x)) * up(x)), or down(f(up(x))) without a gate; one call after the other, f in torch.

    gate_up      both, or the only one
    activation   name of f in ACTIVATIONS
    output_norm  of the result, in architectures that have one
    turned       whether the input of `down` is rotated, since its weight is in the rotated basis
    call         x [..., K] -> [..., K]; norm: of x, before it is read; residual: added to the result
    step         the same as one call of cpu_kernels; None if they do not run it
    is_tokenwise  whether the step is known to compute each token without a look at the others of the call
    source       Shazeer 2020, arXiv:2002.05202, eq. 6
    """

    step: Callable[..., Tensor] | None = None
    is_tokenwise: bool = False

    def __init__(
        self,
        gate_up: FusedLinears,
        down: FusedLinears,
        activation: str = "silu",
        output_norm: Norm | None = None,
        turned: bool = False,
    ) -> None:
        self.gate_up = gate_up
        self.down = down
        self.activation = ACTIVATIONS[activation]
        self.output_norm = output_norm
        self.turned = turned

    def __call__(self, x: Tensor, norm: Norm | None = None, residual: Tensor | None = None) -> Tensor:
        return self.add_output(self.inner(x, norm), residual)

    def inner(self, x: Tensor, norm: Norm | None = None) -> Tensor:
        """The input of `down`."""
        first, *up = self.gate_up(x, norm)
        inner = self.gated(first, *up) if up else self.activation(first)
        return turned_online(inner) if self.turned else inner

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        return self.activation(gate) * up

    def add_output(self, inner: Tensor, residual: Tensor | None) -> Tensor:
        return add_output(self.down, inner, residual, self.output_norm)


class KernelFeedForward(FeedForward):
    """A net with SiLU that cpu_kernels run as one step, if they have packed its weights; the bits are the call's."""

    def __init__(self, gate_up: FusedLinears, down: FusedLinears) -> None:
        super().__init__(gate_up, down)
        kernels = importlib.import_module("cpu_kernels")
        self._silu_mul, self._feed_forward = kernels.silu_mul, kernels.feed_forward
        self.groups = (gate_up.group, down.group)
        self.step = None if None in self.groups else self._in_one_call
        self.is_tokenwise = self.step is not None and not any(group.shares for group in self.groups)

    def _in_one_call(self, x: Tensor, norm: Norm | None = None, residual: Tensor | None = None) -> Tensor:
        return as_outputs(self._feed_forward(*self.groups, *kernel_arguments(x, norm, residual)), x)

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        gates, ups = (x.reshape(-1, x.shape[-1]) for x in (gate, up))  # [M, K]
        out = torch.empty(gates.shape)
        self._silu_mul(gates.numpy(), ups.numpy(), out=out.numpy())
        return out.view(gate.shape)
