"""InfLLM: each query reads the first tokens, the blocks whose representative keys suit it best, and the last tokens."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from qbench.policies.budget import Budget, Unit
from qbench.policies.policy import Observe, check_at_least
from qbench.policies.registry import policy
from qbench.policies.retrieval import FLOAT32_BYTES, LARGEST, PAGE, BlockState, ChoiceSizes, RetrievalPolicy
from quant.errors import InputError


@policy("infllm")
@dataclass(frozen=True, kw_only=True)
class InfLLM(RetrievalPolicy):
    """Every token stays. A query reads the first tokens, the best distant blocks, and the last tokens.

    The last `local` tokens stay at their places in the text. Once a block of tokens follows the first ones and is not
    among the last, it becomes distant. Then the queries meet its keys, and those of the first tokens, at one distance,
    `local` - 1. A block is represented by the mean of those of its keys that received the most attention until then.
    The score of a block is the product with the query, summed over heads. Neighbouring queries share a choice, by the
    mean of their scores.

    budget           most tokens that a query of a decode step reads
    init             first tokens, which every query reads; a multiple of PAGE
    local            last tokens that every query reads, at least; fewer than `block` more are not in a block yet
    block            tokens of a block, a multiple of PAGE
    representatives  keys of a block that represent it
    queries          queries of a forward pass that share a choice, at most; 512 in the authors' code
    smooth           share of the last choice's scores in a score: an exponential moving average, by which fewer blocks
                     change from step to step. Queries that share a choice replace the average: they are many already

    deviation  Representatives are chosen per KV head, because heads of a group share their keys; the authors' code
               chooses them per query head. Their mean is float16. Tokens that are no longer among the last `local` and
               not yet in a distant block stay at their places in the text.
    source     Xiao et al. 2024, arXiv:2402.04617, section 3, and the authors' code, from which come the distance and
               the paper's sizes: init=128,local=4096,block=128 and 16 blocks
    """

    budget: Budget = Budget(1024)
    init: int = 64
    local: int = 256
    block: int = 128  # type: ignore[misc] - an option of this policy
    representatives: int = 4
    queries: int = 16
    smooth: float = 0.0
    same_in_layers: ClassVar[bool] = False
    may_spill: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_at_least("init", self.init, 0)
        check_at_least("local", self.local, 1)
        check_at_least("block", self.block, PAGE)
        check_at_least("queries", self.queries, 1)
        if self.init % PAGE or self.block % PAGE:
            raise InputError(f"init {self.init} and block {self.block}: expected multiples of {PAGE}")
        if not 1 <= self.representatives <= self.block:
            raise InputError(f"representatives is {self.representatives}, expected 1 to block, which is {self.block}")
        if not 0 <= self.smooth < 1:
            raise InputError(f"smooth is {self.smooth:g}, expected at least 0 and less than 1")
        if self.budget.unit is Unit.TOKENS and self.num_blocks(0) < 1:
            least = self.init + self.local + 2 * self.block - 1
            raise InputError(f"budget {self.budget} leaves no room for a block; expected at least {least} tokens")

    @property
    def distant(self) -> Self:
        return self

    @property
    def observes(self) -> Observe | None:
        return Observe(accumulates=True)

    def summary_shape(self, num_kv_heads: int, head_dim: int) -> tuple[int, int]:
        return 1, num_kv_heads * head_dim

    def index_bytes(self, context: int, num_kv_heads: int, head_dim: int) -> int:
        """Summaries of distant blocks, and the attention that the other tokens received"""
        distant = self.num_distant(context)
        summaries = super().index_bytes(distant * self.block, num_kv_heads, head_dim)
        return summaries + (context - self.first_local(distant)) * num_kv_heads * FLOAT32_BYTES

    def num_distant(self, num_seen: int) -> int:
        """Blocks that are distant after so many tokens"""
        return max(0, (num_seen - self.init - self.local) // self.block)

    def first_local(self, num_distant: int) -> int:
        """Tokens that are at one distance if so many blocks are"""
        return self.init + num_distant * self.block if num_distant else 0

    def num_blocks(self, num_seen: int) -> int:
        """Distant blocks that a query reads, at most"""
        return (self.budget.of(num_seen) - self.init - self.local - self.block + 1) // self.block

    def reads_all(self, first: int, total: int) -> bool:
        return self.num_distant(first) == 0

    def summarize(self, keys: Tensor, mass: Tensor | None = None) -> Tensor:
        """keys [G, n, block, D] without rotation, mass [G, n, block]: the attention that they received"""
        assert mass is not None
        best = mass.argsort(dim=2, descending=True, stable=True)[..., : self.representatives]  # [G, n, r]
        chosen = keys.gather(2, best[..., None].expand(-1, -1, -1, keys.shape[3]))
        means = chosen.mean(2).clamp(-LARGEST, LARGEST).half()  # [G, n, D]
        return means.transpose(0, 1).flatten(1)[None]

    def select(self, state: BlockState, query: Tensor) -> Tensor | None:
        """One choice of all queries, [1, 1, n]; query [H, T, D] as it meets distant keys"""
        index, end = state.index, state.first + query.shape[1]
        count = max(1, self.num_blocks(end))
        if index.num_blocks <= count and not self.smooth:
            return torch.arange(index.num_blocks)[None, None]
        scores = index.scores(self.vector(query, index.size // query.shape[2]))
        if self.smooth:
            scores = index.smoothed(scores, self.smooth if query.shape[1] == 1 else 0.0)
        limits = np.array([index.num_blocks])
        return index.best(scores, limits, np.minimum(limits, count))

    def sizes(self, layer: int, end: int, num_blocks: int, page: int = PAGE) -> ChoiceSizes | None:
        if not num_blocks:
            return None
        count = min(num_blocks, max(1, self.num_blocks(end)))
        first_page = self.first_local(num_blocks) // page
        return ChoiceSizes(count, self.init // page, self.block // page, first_page, page)

    def vector(self, query: Tensor, num_groups: int) -> Tensor:
        """[1, 1, G * D]: queries [H, T, D], mean over T, summed over the heads of a group"""
        return query.mean(1).unflatten(0, (num_groups, -1)).sum(1).flatten()[None, None]
