"""TOVA: tokens that the last query attends to."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from qbench.policies.budget import Budget
from qbench.policies.budgeted import BudgetedPolicy, protect
from qbench.policies.policy import LayerState, Observe
from qbench.policies.registry import policy


@policy("tova")
@dataclass(frozen=True, kw_only=True)
class Tova(BudgetedPolicy):
    """All heads of a layer keep the same tokens: those with the largest mean weight from the last query.

    budget   the paper's point of reference is 512 of 4096 tokens

    deviation  The newest token always stays. The paper lets it compete, which it nearly always survives.
    source     Oren et al. 2024, arXiv:2401.06104, section 3.2
    """

    budget: Budget = Budget(512)
    in_decode: ClassVar[bool] = True
    per_head: ClassVar[bool] = False

    @property
    def observes(self) -> Observe:
        return Observe(queries=1)

    def score(self, state: LayerState, count: int) -> Tensor:
        score = state.score
        return protect(score.sum(1, keepdim=True).expand_as(score), state.last(1))
