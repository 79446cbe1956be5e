"""SnapKV: tokens that the last queries of the prompt attend to, and their neighbours."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from qbench.policies.budget import Budget
from qbench.policies.budgeted import BudgetedPolicy, protect
from qbench.policies.policy import LayerState, Observe, check_at_least
from qbench.policies.registry import policy
from quant.errors import InputError


@policy("snapkv")
@dataclass(frozen=True, kw_only=True)
class SnapKV(BudgetedPolicy):
    """Each KV head keeps the observation window and the tokens before it with the largest pooled weights.

    Weights of the window's queries are summed over the queries and the heads of a group, then averaged over
    neighbouring tokens. Generated tokens are all kept.

    budget   tokens after the prefill, the window included
    window   queries at the end of the prompt that are observed, and whose tokens stay
    kernel   width of the average over neighbours, odd

    deviation  The paper stores keys per query head; heads of a group share theirs here, as their weights are summed.
    source     Li et al. 2024, arXiv:2404.14469, section 4
    """

    budget: Budget = Budget(320)
    window: int = 64
    kernel: int = 5

    def __post_init__(self) -> None:
        check_at_least("window", self.window, 1)
        check_at_least("kernel", self.kernel, 1)
        if self.kernel % 2 == 0:
            raise InputError(f"kernel is {self.kernel}, expected an odd number")
        super().__post_init__()

    @property
    def fewest(self) -> int:
        return self.window + 1

    @property
    def observes(self) -> Observe:
        return Observe(queries=self.window)

    def score(self, state: LayerState, count: int) -> Tensor:
        in_window = state.last(self.window)
        before = state.score.masked_fill(in_window, 0)
        return protect(F.avg_pool1d(before, self.kernel, stride=1, padding=self.kernel // 2), in_window)
