"""Quest: each query reads the pages whose keys could give it the highest scores."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from qbench.policies.budget import Budget
from qbench.policies.policy import check_at_least, top_slots
from qbench.policies.registry import policy
from qbench.policies.retrieval import PAGE, BlockState, RetrievalPolicy

FEWEST_PAGES = 3  # as in the authors' code
LARGEST = 65504.0  # of float16


@policy("quest")
@dataclass(frozen=True, kw_only=True)
class Quest(RetrievalPolicy):
    """Every token stays. A query reads the pages with the highest upper bounds of its scores, and its own page.

    A page is 16 tokens. Its bound is the sum over channels of max(q * min, q * max), with the page's smallest and
    largest key of each channel. The prompt is dense. Every query of a later forward pass chooses by itself.

    budget  tokens that a query reads, its own page included
    dense   so many first layers read everything

    deviation  Query heads of a group share their pages, because they share their keys: bounds are summed over them.
               The paper has one query head per KV head. Minima and maxima are float16. The page of the query is always
               read, as in the authors' kernels.
    source     Tang et al. 2024, arXiv:2406.10774, algorithm 1
    """

    budget: Budget = Budget(1024)
    dense: int = 2
    same_in_layers: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_at_least("dense", self.dense, 0)

    def summary_size(self, head_dim: int) -> int:
        return 2 * head_dim

    def summarize(self, keys: Tensor) -> Tensor:
        bounds = torch.cat((keys.amin(2), keys.amax(2)), -1)  # [G, n, 2 D]
        return bounds.clamp(-LARGEST, LARGEST).half().transpose(0, 1)

    def num_pages(self, num_seen: int) -> int:
        """Pages that a query reads at most if it is the last of so many tokens."""
        return max(FEWEST_PAGES, self.budget.of(num_seen) // PAGE)

    def reads_all(self, first: int, total: int) -> bool:
        return first == 0 or -(-total // PAGE) <= self.num_pages(total)

    def select(self, state: BlockState, query: Tensor) -> Tensor | None:
        total = state.first + query.shape[1]
        if state.layer < self.dense or self.reads_all(state.first, total):
            return None
        bounds = self.bounds(state, query)  # [T, G, n]
        chosen = [self._pages(one, position) for position, one in enumerate(bounds, state.first)]
        longest = max(pages.shape[1] for pages in chosen)
        return torch.stack([pad(pages, (0, longest - pages.shape[1]), value=-1) for pages in chosen])

    def bounds(self, state: BlockState, query: Tensor) -> Tensor:
        """[T, G, n] float32: bounds of the complete pages, summed over the heads of a group

        max(q * min, q * max) is q * min for q < 0 and q * max for q > 0, so that a bound is one product of the page's
        minima and maxima with the negative and the positive part of the query.
        """
        negative, positive = query.clamp(max=0), query.clamp(min=0)
        vectors = torch.cat((negative, positive), -1).transpose(0, 1)  # [T, H, 2 D]
        return state.scores(vectors)

    def _pages(self, bounds: Tensor, position: int) -> Tensor:
        """[G, n] pages of one query, ascending; bounds [G, complete pages]"""
        own = position // PAGE
        before = top_slots(bounds[None, :, :own], min(own, self.num_pages(position + 1) - 1))[0]
        return torch.cat((before, torch.full_like(before[:, :1], own)), 1)
