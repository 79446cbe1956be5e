"""KeyDiff: tokens whose keys differ most from the mean key."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from qbench.policies.budget import Budget
from qbench.policies.budgeted import BudgetedPolicy
from qbench.policies.policy import LayerState
from qbench.policies.registry import policy


@policy("keydiff")
@dataclass(frozen=True, kw_only=True)
class KeyDiff(BudgetedPolicy):
    """Each KV head keeps the keys with the smallest cosine to the mean of its normalized keys.

    Generated tokens are all kept. With a prompt in chunks this is the paper's iteration over blocks.

    budget   tokens after each forward pass of a prompt
    source   Park et al. 2025, arXiv:2504.15364, section 3.2
    """

    budget: Budget = Budget(2048)

    def score(self, state: LayerState, count: int) -> Tensor:
        keys = F.normalize(state.reader.keys(), dim=-1)
        return -F.cosine_similarity(keys, keys.mean(2, keepdim=True), dim=-1)
