"""The functions inside feed-forward nets, by `ModelConfig.activation`.

Not torch's own silu and gelu: those take another path for the last numbers of each thread's share, so that a token's
result would depend on how many tokens and threads there are. exp, tanh and erf, of which these are made, do not.

`turned_online` is the rotation of activations that runs with the model.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from quant.turn import turn_of

SQRT_HALF, SQRT_2_OVER_PI = math.sqrt(1 / 2), math.sqrt(2 / math.pi)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e^-x)"""
    return torch.neg(x).exp_().add_(1).reciprocal_()


def silu(x: Tensor) -> Tensor:
    """x / (1 + e^-x). source  Elfwing et al. 2017, arXiv:1702.03118"""
    return x / torch.neg(x).exp_().add_(1)


def gelu(x: Tensor) -> Tensor:
    """x times the share of a normal distribution below x. source  Hendrycks & Gimpel 2016, arXiv:1606.08415"""
    return (x * SQRT_HALF).erf_().add_(1).mul_(x).mul_(0.5)


def gelu_tanh(x: Tensor) -> Tensor:
    """The same source's approximation: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))"""
    return (x * x).mul_(0.044715).add_(1).mul_(x).mul_(SQRT_2_OVER_PI).tanh_().add_(1).mul_(x).mul_(0.5)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": silu,
    "relu": torch.relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}


def turned_online(x: Tensor) -> Tensor:
    """x [..., size] float32 -> x Q [..., size], by the factors of Q: a product with each of them"""
    signs, factors = _factors(x.shape[-1])
    turned = (x * signs).reshape(-1, *(len(factor) for factor in factors))
    for axis, factor in enumerate(factors, start=1):
        turned = (turned.movedim(axis, -1) @ factor).movedim(-1, axis)
    return turned.reshape(x.shape)


@lru_cache
def _factors(size: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    """signs [size], and the factors of Q, float32"""
    turn = turn_of(size)
    return torch.from_numpy(turn.signs).float(), tuple(torch.from_numpy(factor).float() for factor in turn.factors)
