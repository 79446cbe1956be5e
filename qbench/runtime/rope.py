"""Rotary position embedding: inverse frequencies by rope type, and the rotation."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from qbench.runtime.config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians a position for each rotary pair.

    returns  [head_dim / 2] float32, descending from 1
    source   Su et al. 2021, arXiv:2104.09864, section 3.2.2
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    return SCALINGS[rope.rope_type](1.0 / rope.theta**exponent, rope)


def _unscaled(frequencies: Tensor, rope: RopeConfig) -> Tensor:
    return frequencies


def _linear(frequencies: Tensor, rope: RopeConfig) -> Tensor:
    """Positions divided by `factor`. source  Chen et al. 2023, arXiv:2306.15595, eq. 4"""
    return frequencies / rope.factor


def _llama3(frequencies: Tensor, rope: RopeConfig) -> Tensor:
    """Long waves slowed by `factor`, short waves kept, a linear blend between.

    A pair turns `turns` times within the original context: fewer than low_freq_factor is a long wave,
    more than high_freq_factor a short one.
    source   Llama 3.1 reference code, `apply_scaling` (meta-llama/llama-models)
    """
    turns = rope.original_max_position_embeddings * frequencies / (2 * math.pi)
    keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    keep = keep.clamp(0, 1)  # 0: long wave, 1: short wave
    return (1 - keep) * frequencies / rope.factor + keep * frequencies


SCALINGS: dict[str, Callable[[Tensor, RopeConfig], Tensor]] = {
    "default": _unscaled,
    "linear": _linear,
    "llama3": _llama3,
}


def rotation(inverse_frequency: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of every pair's angle at `positions`.

    inverse_frequency  [D / 2] float32
    positions          [T] int64
    returns            cos [T, D], sin [T, D] float32; the two halves are equal in cos and opposite in sin
    """
    angles = torch.outer(positions.float(), inverse_frequency)  # [T, D/2]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x` with pair (i, i + D/2) of every head turned by its angle.

    x        [B, H, T, D]
    cos, sin [T, D] from `rotation`; sin carries the sign of the swap
    """
    swapped = x.roll(x.shape[-1] // 2, dims=-1)  # the two halves of each head, exchanged
    return torch.addcmul(x * cos, swapped, sin)
