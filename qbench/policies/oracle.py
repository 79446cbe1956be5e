"""The oracle: the most that a choice of tokens by attention can reach. It reads a text twice, as a yardstick."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from qbench.policies.budget import Budget
from qbench.policies.budgeted import BudgetedPolicy
from qbench.policies.policy import CachePolicy, LayerState, Observe
from qbench.policies.registry import policy


class Recorder(CachePolicy):
    """Keeps all tokens, and notes the attention that the queries of each forward pass pay to them.

    passes  (layer, sequence) -> (tokens seen at the end of a forward pass, [B, G, tokens seen] float32) in order
    """

    name = "recorder"
    same_in_layers: ClassVar[bool] = False

    def __init__(self) -> None:
        self.passes: dict[tuple[int, int], list[tuple[int, Tensor]]] = defaultdict(list)

    @property
    def observes(self) -> Observe:
        return Observe()

    def update(self, state: LayerState, weights: Tensor) -> Tensor:
        self.passes[state.layer, state.sequence].append((state.num_seen, weights))
        return weights

    def slots(self, context: int, layer: int, num_layers: int) -> int:
        return context

    def keep(self, state: LayerState) -> Tensor | None:
        return None

    def future(self, layer: int, sequence: int, num_seen: int) -> Tensor:
        """The attention that all queries after the first `num_seen` tokens pay to each of them, [B, G, num_seen]"""
        passes = self.passes[layer, sequence]
        later = [weights[..., :num_seen] for end, weights in passes if end > num_seen]
        if not later:
            return torch.zeros_like(passes[0][1][..., :1]).expand(-1, -1, num_seen)
        return torch.stack(later).sum(0)


@policy("oracle")
@dataclass(frozen=True, kw_only=True)
class Oracle(BudgetedPolicy):
    """Keeps the tokens that the rest of the text attends to most, as a first pass with all tokens found out.

    A token's score is the attention weight that all later queries pay to it if nothing is evicted, summed over the
    heads of its group. It is a yardstick for texts that are known to their end, and refused if tokens are generated.
    """

    budget: Budget
    needs_future: ClassVar[bool] = True
    same_in_layers: ClassVar[bool] = False

    def informed(self, recorder: Recorder) -> "InformedOracle":
        """The policy for the text that the recorder has seen, if it passes in the same chunks."""
        return InformedOracle(budget=self.budget, recorder=recorder)

    def score(self, state: LayerState, count: int) -> Tensor:
        raise NotImplementedError("policy oracle has seen no text; ask for its informed version")


@dataclass(frozen=True, kw_only=True)
class InformedOracle(Oracle):
    """The oracle for one text."""

    name: ClassVar[str] = "oracle"
    needs_future: ClassVar[bool] = False
    recorder: Recorder = field(compare=False)

    def score(self, state: LayerState, count: int) -> Tensor:
        return self.recorder.future(state.layer, state.sequence, state.num_seen).gather(2, state.positions)
