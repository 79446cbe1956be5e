"""Quest: each query reads the pages whose keys could give it the highest scores."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from qbench.policies.budget import Budget, Unit
from qbench.policies.policy import check_at_least
from qbench.policies.registry import policy
from qbench.policies.retrieval import LARGEST, PAGE, BlockScores, BlockState, ChoiceSizes, RetrievalPolicy
from quant.errors import InputError

FEWEST_PAGES = 3  # as in the authors' code


@policy("quest")
@dataclass(frozen=True, kw_only=True)
class Quest(RetrievalPolicy):
    """Every token stays. A query reads the pages with the highest upper bounds of its scores, and its own page.

    A page is 16 tokens. Its bound is the sum over channels of max(q * min, q * max), with the page's smallest and
    largest key of each channel. The prompt is dense. Every query of a later forward pass chooses by itself.

    budget  tokens that a query reads, its own page included; at least three pages
    dense   so many first layers read everything

    deviation  Query heads of a group share their pages, because they share their keys: bounds are summed over them.
               The paper has one query head per KV head. Minima and maxima are float16. The page of the query is always
               read, as in the authors' kernels.
    source     Tang et al. 2024, arXiv:2406.10774, algorithm 1
    """

    budget: Budget = Budget(1024)
    dense: int = 2
    same_in_layers: ClassVar[bool] = False
    why_no_spill: ClassVar[str] = (
        "its first layers read every page in each step, and each KV head chooses pages of its own, so most pages would "
        "come from the disk"
    )

    def __post_init__(self) -> None:
        check_at_least("dense", self.dense, 0)
        least = FEWEST_PAGES * PAGE
        if self.budget.unit is Unit.TOKENS and self.budget.amount < least:
            raise InputError(f"budget {self.budget}: policy {self.name} needs at least {least} tokens")

    def summary_shape(self, num_kv_heads: int, head_dim: int) -> tuple[int, int]:
        return num_kv_heads, 2 * head_dim

    def summarize(self, keys: Tensor, mass: Tensor | None = None) -> Tensor:
        bounds = torch.cat((keys.amin(2), keys.amax(2)), -1)  # [G, n, 2 D]
        return bounds.clamp(-LARGEST, LARGEST).half()

    def num_pages(self, num_seen: int) -> int:
        """Pages that a query reads at most if it is the last of so many tokens."""
        return max(FEWEST_PAGES, self.budget.of(num_seen) // PAGE)

    def reads_all(self, first: int, total: int) -> bool:
        return first == 0 or -(-total // PAGE) <= self.num_pages(total)

    def select(self, state: BlockState, query: Tensor) -> Tensor | None:
        num_queries = query.shape[1]
        if state.layer < self.dense or self.reads_all(state.first, state.first + num_queries):
            return None
        positions = state.first + np.arange(num_queries)
        own = positions // PAGE  # pages before that one are complete
        counts = np.minimum(own, [self.num_pages(position + 1) - 1 for position in positions.tolist()])
        bounds = self.bounds(query, state.index)
        best = state.index.best(bounds, own, counts).numpy()
        chosen = np.full((*best.shape[:2], best.shape[2] + 1), -1)  # [T, G, n]
        chosen[..., :-1] = best
        chosen[np.arange(num_queries), :, counts] = own[:, None]
        return torch.from_numpy(chosen)

    def sizes(self, layer: int, end: int, num_blocks: int, page: int = PAGE) -> ChoiceSizes | None:
        if layer < self.dense or self.reads_all(end - 1, end):
            return None
        return ChoiceSizes(min(num_blocks, self.num_pages(end) - 1), 0, 1, num_blocks)

    def bounds(self, query: Tensor, index: BlockScores) -> Tensor:
        """[T, G, n] float32: bounds of the complete pages, summed over the heads of a group

        max(q * min, q * max) is q * min for q < 0 and q * max for q > 0, so that a bound is one product of the page's
        minima and maxima with the negative and the positive part of the query.

        query    [H, T, D]
        """
        num_groups = index.num_choices
        parts = torch.cat((query.clamp(max=0), query.clamp(min=0)), -1)  # [H, T, 2 D]
        return index.scores(parts.unflatten(0, (num_groups, -1)).sum(1).transpose(0, 1))
