"""`BoundedPolicy`: policies with a budget of tokens that are kept or read."""

from dataclasses import dataclass, replace
from typing import Self

from qbench.policies.budget import Budget
from qbench.policies.policy import CachePolicy


@dataclass(frozen=True, kw_only=True)
class BoundedPolicy(CachePolicy):
    budget: Budget

    def for_model(self, num_layers: int, bytes_per_token: float) -> Self:
        return replace(self, budget=self.budget.in_tokens(bytes_per_token))

    def most_read(self) -> Budget:
        return self.budget
