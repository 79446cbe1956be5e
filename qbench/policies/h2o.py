"""H2O: tokens that received the most attention so far, and the most recent ones."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from qbench.policies.budget import Budget, Unit
from qbench.policies.budgeted import BudgetedPolicy, protect
from qbench.policies.policy import LayerState, Observe
from qbench.policies.registry import policy
from quant.errors import InputError


@policy("h2o")
@dataclass(frozen=True, kw_only=True)
class H2O(BudgetedPolicy):
    """Heavy hitters and recent tokens, for each KV head.

    A token's score is the attention weight that it received from all queries since it came, summed over the heads of
    its group. When the budget is exceeded, the tokens with the lowest sums are evicted, except for the most recent
    ones. Queries count when they have been computed, never future ones.

    budget   20 % of the prompt, as in the paper's main results
    recent   share of the budget for the most recent tokens; the paper gives half to them

    deviation  Inside a forward pass of several tokens all queries see all tokens before them; eviction follows the
               pass. Forward passes of one token are the paper's algorithm step by step. The sums are taken per KV head,
               because query heads of a group share their keys; the paper has one query head per KV head.
    source     Zhang et al. 2023, arXiv:2306.14048, algorithm 1
    """

    budget: Budget = Budget(0.2, Unit.SHARE)
    recent: float = 0.5
    in_decode: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.recent <= 1:
            raise InputError(f"recent is {self.recent:g}, expected a share above 0 and up to 1")

    @property
    def observes(self) -> Observe:
        return Observe(queries=None, accumulates=True)

    def score(self, state: LayerState, count: int) -> Tensor:
        return protect(state.score, state.last(max(1, int(self.recent * count))))
