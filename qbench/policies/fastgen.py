"""FastGen: each head keeps the kinds of tokens that it attends to."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from qbench.policies.policy import CachePolicy, LayerState, Observe, padded_slots, top_slots
from qbench.policies.registry import policy
from quant.errors import InputError
from quant.present import present

# Values of `LayerState.notes` for each head. Heads that saw no prompt keep all tokens.
FULL, SPECIAL, PUNCTUATION, FREQUENT, LOCAL = range(5)


@policy("fastgen")
@dataclass(frozen=True, kw_only=True)
class FastGen(CachePolicy):
    """Each KV head follows the cheapest rule whose tokens received enough attention from the prompt's queries.

    The rules are: special tokens; these and punctuation; these and frequent tokens, which are those with the largest
    sums of attention weights so far; these and local tokens, which are the last ones before a query; all tokens. A
    rule is enough if its tokens received `target` of the weight, averaged over the queries and the heads of a group.
    In decode each head keeps the tokens of its rule. A new token is always visible to its own query.

    target    share of the weight
    frequent  number of frequent tokens, as a share of the text so far
    local     number of local tokens, as a share of the text so far

    deviation  A prompt in chunks is profiled once for each chunk, on the tokens that the head still holds. A model
               without a tokenizer has no special tokens and no punctuation.
    source     Ge et al. 2023, arXiv:2310.01801, section 3 and algorithm 1
    """

    target: float = 0.9
    frequent: float = 0.3
    local: float = 0.3
    per_head_lengths: ClassVar[bool] = True
    reads_token_kinds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("target", "frequent", "local"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name):g}, expected a share above 0 and up to 1")

    @property
    def observes(self) -> Observe:
        return Observe(queries=None, accumulates=True, each=True)

    def slots(self, context: int, layer: int, num_layers: int) -> int:
        return context

    def update_each(self, state: LayerState, weights: Iterator[Tensor]) -> Tensor:
        mass, near = torch.zeros(2, *state.positions.shape).unbind()  # weights from all queries, from those nearby
        first = state.num_seen - state.num_new
        for block in weights:  # [B, G, t, S]
            queries = torch.arange(first, first + block.shape[2])[:, None]
            is_near = state.positions[:, :, None] > queries - self._width(state)
            mass += block.sum(2)
            near += (block * is_near).sum(2)
            first += block.shape[2]
        score = state.score + mass
        if state.is_prefill:
            present(state.notes).copy_(self._cheapest(state, mass, near, score))
        return score

    def _cheapest(self, state: LayerState, mass: Tensor, near: Tensor, score: Tensor) -> Tensor:
        """[B, G] int64: the first rule whose tokens received enough weight"""
        kept = self._kept(state, score)
        received = {rule: mass.masked_fill(~slots, 0).sum(2) for rule, slots in kept.items()}
        received[LOCAL] = received[FREQUENT] + near.masked_fill(kept[FREQUENT], 0).sum(2)
        found = torch.full(score.shape[:2], FULL)
        for rule in (LOCAL, FREQUENT, PUNCTUATION, SPECIAL):
            found = torch.where(received[rule] >= self.target * state.num_new, rule, found)
        return found

    def _kept(self, state: LayerState, score: Tensor) -> dict[int, Tensor]:
        """[B, G, S] bool: slots that each rule but FULL keeps"""
        special = state.is_one_of(state.token_kinds.special)
        punctuation = special | state.is_one_of(state.token_kinds.punctuation)
        count = min(max(1, int(self.frequent * state.num_seen)), score.shape[2])
        slots = top_slots(score.masked_fill(~state.is_held, -torch.inf), count)
        frequent = punctuation | torch.zeros_like(special).scatter(2, slots, True)
        local = frequent | state.last(self._width(state))
        return {SPECIAL: special, PUNCTUATION: punctuation, FREQUENT: frequent, LOCAL: local}

    def _width(self, state: LayerState) -> int:
        """Number of local tokens, a query's own included."""
        return max(1, int(self.local * state.num_seen))

    def keep(self, state: LayerState) -> Tensor | None:
        stays = state.is_held
        for rule, slots in self._kept(state, state.score).items():
            stays = stays & (slots | (present(state.notes) != rule)[..., None])
        return None if torch.equal(stays, state.is_held) else padded_slots(stays)
