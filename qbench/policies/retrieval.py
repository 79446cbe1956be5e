"""`RetrievalPolicy`: keeps every token, and lets each query read only some blocks of them."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import Tensor

from qbench.policies.budget import Budget
from qbench.policies.policy import CachePolicy, LayerState

PAGE = 16  # tokens; blocks are whole pages, because attention in kernels takes a table of pages


@dataclass(frozen=True, slots=True)
class BlockState:
    """One layer of one sequence, after its new tokens are stored and before their queries attend.

    layer, num_layers  of the model
    first              tokens before the forward pass
    scores             query vectors [Q, G, C] float32 -> [Q, G, n] float32: their products with the summaries of the
                       complete blocks, see `RetrievalPolicy.summarize`
    """

    layer: int
    num_layers: int
    first: int
    scores: "Scores"


class Scores:
    """Called by a policy: products of query vectors with the summaries of blocks."""

    @abstractmethod
    def __call__(self, vectors: Tensor) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class RetrievalPolicy(CachePolicy):
    """Deletes nothing. A query reads at most `budget` tokens in layers that choose.

    block  tokens of a block, a multiple of PAGE
    """

    budget: Budget
    per_head: ClassVar[bool] = False  # every head keeps every token
    block: ClassVar[int] = PAGE

    def for_model(self, num_layers: int, bytes_per_token: float) -> Self:
        return replace(self, budget=self.budget.in_tokens(bytes_per_token))

    def slots(self, context: int, layer: int, num_layers: int) -> int:
        return context

    def keep(self, state: LayerState) -> Tensor | None:
        return None

    @abstractmethod
    def summary_size(self, head_dim: int) -> int:
        """C: float16 numbers per block and KV head that the index keeps"""

    def index_bytes(self, context: int, num_kv_heads: int, head_dim: int) -> int:
        """Bytes of the summaries of one layer that chooses"""
        return context // self.block * num_kv_heads * self.summary_size(head_dim) * 2

    @abstractmethod
    def summarize(self, keys: Tensor) -> Tensor:
        """keys [G, n, block, D] float32 of n complete blocks, as attention reads them -> [n, G, C] float16"""

    @abstractmethod
    def reads_all(self, first: int, total: int) -> bool:
        """Whether all layers read everything in a forward pass that brings tokens `first` to `total` - 1."""

    @abstractmethod
    def select(self, state: BlockState, query: Tensor) -> Tensor | None:
        """Blocks that each query reads.

        query    [H, T, D] float32, rotated
        returns  [T, G, n] int64: ascending and then -1, the block of the query last; None: all tokens up to the query
        """
