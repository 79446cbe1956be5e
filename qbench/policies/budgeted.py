"""Policies with a budget of tokens: as long as a sequence fits, nothing is evicted."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from qbench.policies.budget import Budget, Unit
from qbench.policies.policy import CachePolicy, LayerState, lowest_slot, top_slots
from quant.errors import InputError


@dataclass(frozen=True, kw_only=True)
class BoundedPolicy(CachePolicy):
    budget: Budget

    def for_model(self, num_layers: int, bytes_per_token: float) -> Self:
        return replace(self, budget=self.budget.in_tokens(bytes_per_token))

    def most_read(self) -> Budget:
        return self.budget


@dataclass(frozen=True, kw_only=True)
class BudgetedPolicy(BoundedPolicy):
    """Keeps the tokens with the highest `score`, as many as the budget allows.

    Unless `in_decode`, only forward passes of more than one token evict, and the cache grows by each generated token.
    """

    def __post_init__(self) -> None:
        if self.budget.unit is Unit.TOKENS and self.budget.amount < self.fewest:
            raise InputError(f"budget {self.budget}: policy {self.name} needs at least {self.fewest} tokens")

    @property
    def fewest(self) -> int:
        """Tokens that are kept whatever their score."""
        return 1

    @property
    def observes_decode(self) -> bool:
        observes = self.observes
        return observes is not None and (self.in_decode or observes.accumulates)

    @property
    def acts_in_decode(self) -> bool:
        return self.in_decode

    def slots(self, context: int, layer: int, num_layers: int) -> int:
        return min(context, max(self.budget.of(context), self.fewest))

    def slots_after(self, num_prompt: int, steps: int, layer: int, num_layers: int) -> tuple[int, int]:
        kept, added = super().slots_after(num_prompt, steps, layer, num_layers)
        if self.in_decode and self.budget.unit is Unit.SHARE and num_prompt:
            return kept, min(added, 1)
        return kept, added

    def keep(self, state: LayerState) -> Tensor | None:
        if not (state.is_prefill or self.in_decode):
            return None
        count = self.allowed(state)
        if state.num_held <= count:
            return None
        return top_slots(self._score(state, count), count)

    def evict_one(self, state: LayerState) -> Tensor | None:
        count = self.allowed(state)
        if not self.in_decode or state.num_held != count + 1:
            return None
        return lowest_slot(self._score(state, count))

    def _score(self, state: LayerState, count: int) -> Tensor:
        """`score`, averaged over heads that share their slots but not their keys"""
        score = self.score(state, count)
        return score if score.shape[1] == state.positions.shape[1] else score.mean(1, keepdim=True)

    def allowed(self, state: LayerState) -> int:
        """Number of tokens that the layer may hold: a share refers to the prompt."""
        is_share = self.budget.unit is Unit.SHARE and state.num_prompt
        return self.slots(state.num_prompt if is_share else state.num_seen, state.layer, state.num_layers)

    @abstractmethod
    def score(self, state: LayerState, count: int) -> Tensor:
        """[B, G, S] float, infinite for tokens that stay in any case; `count` tokens will be kept

        For latents, a score that keys decide is [B, H, S], as each head makes its own keys of the shared rows.
        """


def protect(score: Tensor, stays: Tensor) -> Tensor:
    """The score, infinite where `stays` [B, G, S] is true."""
    return score.masked_fill(stays, torch.inf)
