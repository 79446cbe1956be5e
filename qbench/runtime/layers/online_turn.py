"""A rotation that runs with the model: the matrix of `quant.turn` in float32."""

from functools import lru_cache

import torch
from torch import Tensor

from quant.turn import turn_of


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
