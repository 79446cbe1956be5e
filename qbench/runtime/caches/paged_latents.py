"""Caches over sequences whose pages hold rows of latents."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from qbench.runtime.caches.latent_cache import HeldLatents, Span
from qbench.runtime.caches.latent_kernel_cache import KernelLatents, as_rows_of_kernels
from qbench.runtime.caches.page_memory import LatentPages
from qbench.runtime.caches.paged_cache import Paged
from qbench.runtime.caches.pages import PagedSequence, PagePool


class PagedLatentCache(Paged, HeldLatents):
    """Rows of sequences in pages of a pool; whoever makes keys and values of them in torch gathers them."""

    def __init__(self, pool: PagePool, sequences: Sequence[PagedSequence]) -> None:
        assert isinstance(pool.memory, LatentPages)
        self._memory = pool.memory
        HeldLatents.__init__(self, pool.config, pool.memory.format, len(sequences), pool.mode)
        self._over(pool, sequences)

    def store(self, layer: int, rows: Tensor, span: Span) -> None:
        self._memory.store(layer, self._pages(span), span.seq_len, rows)

    def read(self, layer: int, span: Span) -> Tensor:
        return self._memory.read(layer, self._pages(span), span.seq_len + span.count)

    def _pages(self, span: Span) -> list[list[int]]:
        return [sequence.pages for sequence in self.sequences[span.which]]


class PagedKernelLatentCache(KernelLatents, PagedLatentCache):
    """PagedLatentCache whose absorbed attention reads pages where they lie."""

    def table(self) -> np.ndarray:
        return Paged.table(self)

    def rows(self, layer: int) -> np.ndarray:
        return as_rows_of_kernels(self._memory.held[layer])
