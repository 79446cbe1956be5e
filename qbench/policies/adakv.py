"""Ada-KV: SnapKV with one budget for all heads of a layer."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from qbench.policies.policy import LayerState, padded_slots, top_slots
from qbench.policies.registry import policy
from qbench.policies.snapkv import SnapKV
from quant.errors import InputError


@policy("adakv")
@dataclass(frozen=True, kw_only=True)
class AdaKV(SnapKV):
    """The heads of a layer compete for its tokens by SnapKV's scores, so that heads keep different numbers.

    budget   mean over the heads of a layer, after the prefill, the window included
    alpha    share of the budget that each head keeps in any case

    deviation  In the authors' code, heads compete for everything, and the budget of each is the mean of its gain and an
               equal share, with weights 1 - alpha and alpha. Here each head first gets its best tokens for alpha of an
               equal share, and heads compete for the rest, as in kvpress.
    source     Feng et al. 2024, arXiv:2407.11550, algorithms 1 and 2
    """

    alpha: float = 0.2
    per_head_lengths: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"alpha is {self.alpha:g}, expected a share from 0 to 1")
        super().__post_init__()

    def keep(self, state: LayerState) -> Tensor | None:
        count, num_heads = self.allowed(state), state.positions.shape[1]
        if not state.is_prefill or int(state.is_held.sum((1, 2)).max()) <= num_heads * count:
            return None
        order = (~state.is_held).byte().argsort(dim=2, stable=True)  # a head's tokens first: neighbours are adjacent
        dense = replace(state, positions=state.positions.gather(2, order), score=state.score.gather(2, order))
        score = self.score(dense, count).masked_fill(~dense.is_held, -torch.inf)  # [B, G, S]
        safe = top_slots(score, min(int(self.alpha * count), score.shape[2]))
        score = score.scatter(2, safe, torch.inf).masked_fill(~dense.is_held, -torch.inf)
        best = top_slots(score.flatten(1)[:, None], num_heads * count)[:, 0]  # [B, G * count]
        chosen = torch.zeros_like(order).flatten(1).scatter(1, best, 1).view(order.shape)
        return padded_slots(torch.zeros_like(order).scatter(2, order, chosen).bool())
