"""Caches over sequences in pages: on cpu_kernels' stores, and in torch."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from qbench.runtime.caches.cache import TorchCache, causal_attention
from qbench.runtime.caches.kernel_cache import StoreCache
from qbench.runtime.caches.page_memory import EVICTED, StorePages, TorchPages
from qbench.runtime.caches.pages import PagedSequence, PagePool
from qbench.runtime.caches.sequences import Sequences, check_seq_len
from qbench.runtime.caches.step import Step


class Paged(Sequences):
    """What caches over sequences of a pool have in common; comes before Cache among a class's bases."""

    pool: PagePool
    sequences: list[PagedSequence]

    def _over(self, pool: PagePool, sequences: Sequence[PagedSequence]) -> None:
        self.pool, self.sequences = pool, list(sequences)
        self.seq_lens = np.array([sequence.seq_len for sequence in sequences], dtype=np.int64)

    @property
    def bytes_per_token(self) -> float:
        return self.pool.page_bytes / self.pool.page_size

    @property
    def size_bytes(self) -> int:
        """Of the pages that these sequences hold; shared ones count once."""
        return len({page for sequence in self.sequences for page in sequence.pages} - {EVICTED}) * self.pool.page_bytes

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        check_seq_len(step.end, self.pool.config.max_positions)
        counts = [tokens.shape[1]] * self.batch if step.counts is None else step.counts.tolist()
        for sequence, count in zip(self.sequences, counts, strict=True):
            sequence.reserve(count)
        return step

    def table(self) -> np.ndarray:
        """[B, pages] int32: the pages of each sequence, in order"""
        most = max([1, *(len(sequence.pages) for sequence in self.sequences)])
        table = np.full((self.batch, most), EVICTED, dtype=np.int32)
        for row, sequence in zip(table, self.sequences, strict=True):
            row[: len(sequence.pages)] = sequence.pages
        return table

    def advance(self, num_tokens: int | np.ndarray) -> None:
        super().advance(num_tokens)
        for sequence, seq_len in zip(self.sequences, self.seq_lens.tolist(), strict=True):
            sequence.seq_len = seq_len

    def truncate(self, seq_len: int | np.ndarray) -> None:
        wanted = np.minimum(self.seq_lens, seq_len).tolist()
        for sequence, kept in zip(self.sequences, wanted, strict=True):
            sequence.check_truncate(kept)  # all, before any forgets
        super().truncate(seq_len)
        for sequence, kept in zip(self.sequences, self.seq_lens.tolist(), strict=True):
            sequence.truncate(kept)


class PagedCache(Paged, StoreCache):
    """Sequences in pages of a pool of stores, for one or more forward passes; cheap to make: each may have its own.

    A forward pass takes the pages that its new tokens need, and raises OutOfPages before anything is computed.
    """

    def __init__(self, pool: PagePool, sequences: Sequence[PagedSequence]) -> None:
        StoreCache.__init__(self, pool.config, len(sequences))
        self._over(pool, sequences)
        assert isinstance(pool.memory, StorePages)
        self.stores = pool.memory.stores

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        self.block_table = self.table()
        return step

    def reserve_all(self, num_tokens: int) -> tuple[list, np.ndarray]:
        return self.stores, self._ends(num_tokens)

    def _reserve_layer(self, layer: int, seq_len: int) -> None:
        """`begin` has made it."""


class PagedTorchCache(Paged, TorchCache):
    """PagedCache over a pool in torch, which gathers a sequence's pages to attend to them: right, not fast."""

    one_width = False

    def __init__(self, pool: PagePool, sequences: Sequence[PagedSequence]) -> None:
        TorchCache.__init__(self, pool.config, len(sequences))
        self._over(pool, sequences)
        assert isinstance(pool.memory, TorchPages)
        self._memory = pool.memory

    def _attend(self, layer: int, which: slice, seq_len: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        pages = [sequence.pages for sequence in self.sequences[which]]
        keys, values = self._memory.extend(layer, pages, seq_len, k, v)
        return causal_attention(q, keys, values, self.rules[layer])
