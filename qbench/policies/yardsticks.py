"""Yardsticks: policies that look at nothing. A method has to beat them."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from qbench.policies.budget import Budget
from qbench.policies.budgeted import BudgetedPolicy, protect
from qbench.policies.policy import LayerState
from qbench.policies.registry import policy

_HASH_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # odd, 2**64 over the golden ratio, as int64: Fibonacci hashing


@policy("recent")
@dataclass(frozen=True, kw_only=True)
class Recent(BudgetedPolicy):
    """Keeps the most recent tokens at the positions that they have in the text."""

    budget: Budget
    in_decode: ClassVar[bool] = True

    def score(self, state: LayerState, count: int) -> Tensor:
        return state.positions.double()


@policy("random")
@dataclass(frozen=True, kw_only=True)
class Random(BudgetedPolicy):
    """Keeps tokens at random, other ones in each layer and KV head, and always the newest.

    The rank of a token is a hash of its position, layer, head and the seed, so that runs repeat and tokens do not
    compete again when later ones arrive.
    """

    budget: Budget
    seed: int = 0
    in_decode: ClassVar[bool] = True
    same_in_layers: ClassVar[bool] = False

    def score(self, state: LayerState, count: int) -> Tensor:
        heads = torch.arange(state.positions.shape[1])[:, None]  # [G, 1]
        place = ((self.seed * 1009 + state.layer) * 1009 + heads) * 1_000_003 + state.positions  # [B, G, S]
        mixed = place * _HASH_FACTOR
        mixed = (mixed ^ (mixed >> 29)) * _HASH_FACTOR
        return protect((mixed >> 11).double(), state.last(1))
