"""`RetrievalPolicy`: keeps every token, and lets each query read only some blocks of them."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from torch import Tensor

from qbench.policies.budgeted import BoundedPolicy
from qbench.policies.policy import LayerState

FLOAT16_BYTES, FLOAT32_BYTES = 2, 4
LARGEST = 65504.0  # of float16
PAGE = 16  # tokens; blocks are whole pages, because attention in kernels takes a table of pages


@dataclass(frozen=True, slots=True)
class BlockState:
    """One layer of one sequence, after its new tokens are stored and before their queries attend.

    layer  number in the model
    first  tokens before the forward pass
    index  scores the complete blocks
    """

    layer: int
    first: int
    index: "BlockScores"


@dataclass(frozen=True, slots=True)
class ChoiceSizes:
    """Pages that the query of a decode step reads: the first pages, the best blocks, and the pages from `first_page`
    on.

    count  blocks that are chosen
    page   tokens of a page
    """

    count: int
    init_pages: int
    block_pages: int
    first_page: int
    page: int = PAGE

    @property
    def arguments(self) -> tuple[int, int, int, int]:
        """As cpu_kernels take them"""
        return self.count, self.init_pages, self.block_pages, self.first_page

    @property
    def num_far(self) -> int:
        """Tokens that are read before those of `first_page`"""
        return (self.init_pages + self.count * self.block_pages) * self.page

    def num_read(self, end: int) -> int:
        """Tokens that are read of `end`"""
        return end - self.first_page * self.page + self.num_far


class BlockScores(ABC):
    """Summaries of the complete blocks of one layer of a sequence, in text order. See `RetrievalPolicy.summarize`.

    num_choices, size  A, C of `RetrievalPolicy.summary_shape`
    num_blocks         n
    """

    num_choices: int
    size: int
    num_blocks: int

    @abstractmethod
    def scores(self, vectors: Tensor) -> Tensor:
        """Products with the summaries of n blocks. Equal summaries get equal scores.

        vectors  [Q, A, C] float32
        returns  [Q, A, n] float32
        """

    @abstractmethod
    def smoothed(self, scores: Tensor, share: float) -> Tensor:
        """The scores of one query [1, A, n], mixed with this share of those that the last call returned.

        A block that had no score then keeps its own.
        """

    @abstractmethod
    def best(self, scores: Tensor, limits: np.ndarray, counts: np.ndarray) -> Tensor:
        """Blocks with the highest scores, ascending. If scores are equal, lower blocks come first.

        scores          [Q, A, n] float32
        limits, counts  [Q] int64: of query q, counts[q] of the first limits[q] blocks
        returns         [Q, A, max(counts)] int64, filled up with -1
        """


@dataclass(frozen=True, kw_only=True)
class RetrievalPolicy(BoundedPolicy):
    """Deletes nothing. A query reads at most `budget` tokens in layers that choose.

    block  tokens of a block, a multiple of PAGE
    """

    per_head: ClassVar[bool] = False  # every head keeps every token
    block: ClassVar[int] = PAGE

    @property
    def retrieval(self) -> Self:
        return self

    def slots(self, context: int, layer: int, num_layers: int) -> int:
        return context

    def keep(self, state: LayerState) -> Tensor | None:
        return None

    @abstractmethod
    def summary_shape(self, num_kv_heads: int, head_dim: int) -> tuple[int, int]:
        """A, C: choices per layer, and float16 numbers per block and choice"""

    def index_bytes(self, context: int, num_kv_heads: int, head_dim: int) -> int:
        """Bytes of the summaries of one layer that chooses"""
        return context // self.block * math.prod(self.summary_shape(num_kv_heads, head_dim)) * FLOAT16_BYTES

    @abstractmethod
    def summarize(self, keys: Tensor, mass: Tensor | None = None) -> Tensor:
        """Summaries of n complete blocks, [A, n, C] float16.

        keys  [G, n, block, D] float32, as attention reads them
        mass  [G, n, block] float32: sums of the attention weights that the keys received; None unless the policy
              observes them
        """

    @abstractmethod
    def reads_all(self, first: int, total: int) -> bool:
        """Whether all layers read everything in a forward pass that brings tokens `first` to `total` - 1."""

    @abstractmethod
    def select(self, state: BlockState, query: Tensor) -> Tensor | None:
        """Blocks that each query reads.

        query    [H, T, D] float32, rotated
        returns  [Q, A, n] int64, ascending and then -1; None: all tokens up to the query
        """

    @abstractmethod
    def sizes(self, layer: int, end: int, num_blocks: int, page: int = PAGE) -> ChoiceSizes | None:
        """`select` for a decode step that makes `end` tokens, of which num_blocks are summarized; None: reads all.

        page  tokens of a page
        """
