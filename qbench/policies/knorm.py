"""Knorm: tokens whose keys have a small norm."""

from dataclasses import dataclass

from torch import Tensor

from qbench.policies.budget import Budget, Unit
from qbench.policies.budgeted import BudgetedPolicy
from qbench.policies.policy import LayerState
from qbench.policies.registry import policy


@policy("knorm")
@dataclass(frozen=True, kw_only=True)
class Knorm(BudgetedPolicy):
    """Each KV head keeps the tokens whose keys have the smallest L2 norms. Generated tokens are all kept.

    budget   half of the prompt, the share up to which the paper reports no loss
    source   Devoto et al. 2024, arXiv:2406.11430, section 3
    """

    budget: Budget = Budget(0.5, Unit.SHARE)

    def score(self, state: LayerState, count: int) -> Tensor:
        return -state.reader.keys().norm(dim=-1)
