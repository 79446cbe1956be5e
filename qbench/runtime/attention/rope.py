"""Rotary position embedding: inverse frequencies, and the rotation."""

import math

import torch
from torch import Tensor

from quant.models import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int, *, is_long: bool = False) -> Tensor:
    """Radians a position for each rotary pair.

    is_long  in a text of more than `rope.changes_at` tokens
    returns  [head_dim / 2] float32, descending from 1
    source   Su et al. 2021, arXiv:2104.09864, section 3.2.2
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    return 1.0 / rope.theta**exponent / torch.from_numpy(rope.frequency_divisors(head_dim, is_long=is_long))


def rotation(inverse_frequency: Tensor, positions: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """cos and sin of every pair's angle at `positions`, times `scale`.

    inverse_frequency  [D / 2] float32
    positions          [T] int64
    scale              `RopeConfig.rotation_scale`: it reaches queries and keys with the rotation
    returns            cos [T, D], sin [T, D] float32; the two halves are equal in cos and opposite in sin
    """
    return _turns(torch.outer(positions.float(), inverse_frequency), scale)


def far_rotation(inverse_frequency: Tensor, positions: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """`rotation` of positions so large that float32 would not distinguish their angles."""
    angles = torch.outer(positions.double(), inverse_frequency.double()).remainder(2 * math.pi)
    return _turns(angles.float(), scale)


def _turns(angles: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """angles [T, D / 2] -> cos, sin [T, D]"""
    cos, sin = angles.cos(), angles.sin()
    if scale != 1:
        cos, sin = cos * scale, sin * scale
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


class RotationTable:
    """`rotation` of positions from 0 on, kept: a decode step looks its angles up."""

    def __init__(self, inverse_frequency: Tensor, scale: float = 1.0) -> None:
        self.inverse_frequency = inverse_frequency
        self.scale = scale
        self._angles = rotation(inverse_frequency, torch.arange(0), scale)

    def __call__(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """cos, sin [end - start, D]"""
        cos, sin = self._up_to(end)
        return cos[start:end], sin[start:end]

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions [N] int64 -> cos, sin [N, D]"""
        cos, sin = self._up_to(int(positions.max()) + 1)
        return cos[positions], sin[positions]

    def _up_to(self, end: int) -> tuple[Tensor, Tensor]:
        """cos, sin [end or more, D]"""
        cos, sin = self._angles  # read once: another thread may put longer ones in their place
        if end > len(cos):
            # doubling: each angle is computed twice on average, not once per token
            cos, sin = self._angles = rotation(self.inverse_frequency, torch.arange(max(end, 2 * len(cos))), self.scale)
        return cos, sin


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x` with pair (i, i + D/2) of every head turned by its angle.

    x        [B, H, T, D]
    cos, sin [T, D] from `rotation`; sin carries the sign of the swap; [T, R]: only the first R entries are turned
    """
    size = cos.shape[-1]
    if size < x.shape[-1]:
        return torch.cat((rotate(x[..., :size], cos, sin), x[..., size:]), dim=-1)
    swapped = x.roll(x.shape[-1] // 2, dims=-1)  # the two halves of each head, exchanged
    return torch.addcmul(x * cos, swapped, sin)
