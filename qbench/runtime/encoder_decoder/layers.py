"""Attention of encoder and decoder layers, added to the stream."""

from collections.abc import Callable

from torch import Tensor

from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.norm import RMSNorm


class Attention:
    """x plus attention to norm(x); the caller gives the keys and values.

    projections  of x: q, k and v, or q alone where keys and values come from elsewhere
    """

    def __init__(self, norm: RMSNorm, projections: FusedLinears, output: FusedLinears, head_dim: int) -> None:
        self.norm = norm
        self.projections = projections
        self.output = output
        self.head_dim = head_dim

    def __call__(self, x: Tensor, attend: Callable[..., Tensor]) -> Tensor:
        """x [B, T, K]; attend: the projections as heads [B, H, T, D] each -> [B, H, T, D]"""
        out = attend(*(heads(projected, self.head_dim) for projected in self.projections(x, self.norm)))
        (y,) = self.output(out.transpose(1, 2).flatten(2), residual=x)
        return y


def heads(x: Tensor, head_dim: int) -> Tensor:
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)  # [B, T, H D] -> [B, H, T, D]
