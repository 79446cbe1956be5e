"""Scissorhands: tokens that were rarely important in a history window go, many at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from qbench.policies.budget import Budget, Unit
from qbench.policies.budgeted import BudgetedPolicy, protect
from qbench.policies.policy import LayerState, Observe, check_at_least, top_slots
from qbench.policies.registry import policy
from quant.errors import InputError


@policy("scissorhands")
@dataclass(frozen=True, kw_only=True)
class Scissorhands(BudgetedPolicy):
    """For each KV head, counts how often a token was important, and evicts those with the lowest counts.

    A token is important to a query if its weight, averaged over the heads of its group, is at least that of uniform
    attention over the tokens that the query sees.

    budget   tokens that a layer holds at most
    history  queries before an eviction that count
    recent   newest tokens, which stay
    drop     share of the budget that one eviction frees

    deviation  Counts start again at each eviction, so that the history window never reaches beyond the previous one:
               the state is one number per token. The paper gives lower layers more of the budget by a schedule that it
               does not state; all layers have the same budget here.
    source     Liu et al. 2023, arXiv:2305.17118, algorithms 1 and 2
    """

    budget: Budget = Budget(1024)
    history: int = 400
    recent: int = 10
    drop: float = 0.5
    in_decode: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_at_least("history", self.history, 1)
        check_at_least("recent", self.recent, 1)
        if not 0 < self.drop < 1:
            raise InputError(f"drop is {self.drop:g}, expected a share between 0 and 1")
        super().__post_init__()

    @property
    def fewest(self) -> int:
        return self.recent + 1

    @property
    def observes(self) -> Observe:
        return Observe(queries=self.history, accumulates=True, each=True)

    def update_each(self, state: LayerState, weights: Iterator[Tensor]) -> Tensor:
        num_queries = min(state.num_new, self.history)
        visible = state.num_held - num_queries + 1 + torch.arange(num_queries)[:, None]  # [T, 1]
        counts, start = torch.zeros(state.positions.shape), 0
        for block in weights:  # [B, G, t, S]
            end = start + block.shape[2]
            counts += (block * visible[start:end] >= 1).sum(2)
            start = end
        if num_queries == self.history:
            return counts
        # In decode, a query counts if it is one of the last ones before the next eviction.
        until_eviction = self.most(state) - state.num_held
        return state.score + counts if state.is_prefill or until_eviction < self.history else state.score

    def slots_after(self, num_prompt: int, steps: int, layer: int, num_layers: int) -> tuple[int, int]:
        is_share = self.budget.unit is Unit.SHARE and num_prompt
        most = self.budget.of(num_prompt if is_share else num_prompt + steps)
        count = self._rest(most)
        held = num_prompt if num_prompt <= most else count
        if held + steps <= most:
            return held, steps
        return count, (held + steps - most - 1) % (most + 1 - count)

    def keep(self, state: LayerState) -> Tensor | None:
        if state.num_held <= self.most(state):
            return None
        count = self._rest(self.most(state))
        kept = top_slots(self.score(state, count), count)
        state.score.zero_()
        return kept

    def _rest(self, most: int) -> int:
        """Number of tokens that an eviction leaves."""
        return max(self.fewest, int((1 - self.drop) * most))

    def evict_one(self, state: LayerState) -> Tensor | None:
        return None  # many go at a time

    def most(self, state: LayerState) -> int:
        """Number of tokens that the layer holds when it is full."""
        is_share = self.budget.unit is Unit.SHARE and state.num_prompt
        return self.budget.of(state.num_prompt if is_share else state.num_seen)

    def score(self, state: LayerState, count: int) -> Tensor:
        # If counts are equal, the more recent token stays.
        newness = state.positions / (state.num_seen + 1)
        return protect(state.score + newness, state.last(self.recent))
