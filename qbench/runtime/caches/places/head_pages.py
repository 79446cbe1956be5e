"""Pages of single KV heads: sequences of a pool whose heads have lengths of their own."""

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from qbench.policies import Observe
from qbench.runtime.caches.places.pages import OutOfPages, PagedSequence, PagePool
from qbench.runtime.caches.places.places import PoolPages
from qbench.runtime.caches.places.slot_table import SlotTable
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.head_storage import HeadStorage
from qbench.runtime.caches.storage.kv_storage import Far, KVStorage
from quant.models import AttentionRule

IN_A_POOL = "one head in pages of a pool; expected a call of the pool"


class PooledHead(KVStorage):
    """Keys and values of one KV head of one layer of one sequence.

    pool    whose only memory holds one head
    pages   of the pool, in order
    """

    num_pages = 1

    def __init__(self, pool: PagePool) -> None:
        (self.memory,) = pool.memories
        self.pool, self.pages = pool, list[int]()
        self.bytes_per_token, self.one_width = self.memory.bytes_per_token, self.memory.one_width

    @property
    def page_size(self) -> int:
        return len(self.pages) * self.pool.page_size

    def missing(self, num_slots: int) -> int:
        """Pages that so many slots take beyond those that are held."""
        return self.pool.pages_for(num_slots) - len(self.pages)

    def resize(self, page_size: int) -> None:
        missing = self.missing(page_size)
        self.pages += [self.pool.allocate() for _ in range(missing)]
        for _ in range(-missing):
            self.pool.release(self.pages.pop())

    def add_pages(self, num_pages: int) -> None:
        raise NotImplementedError(IN_A_POOL)

    def copy_page(self, source: int, target: int) -> None:
        raise NotImplementedError(IN_A_POOL)

    def save_page(self, page: int) -> list[object]:
        return [self.memory.save_page(page) for page in self.pages]

    def load_page(self, page: int, saved: list[object]) -> None:
        for one, data in zip(self.pages, saved, strict=True):
            self.memory.load_page(one, data)

    def append(self, k: Tensor, v: Tensor, past: Past, slots: Tensor | None = None) -> None:
        self.memory.append(k, v, self._past(past), slots)

    def attend(
        self, q: Tensor, past: Past, rule: AttentionRule, observe: Observe | None = None, far: Far | None = None
    ) -> tuple[Tensor, Tensor | Iterator[Tensor] | None]:
        return self.memory.attend(q, self._past(past), rule, observe, far)

    def finish(self, past: Past) -> None:
        if self.pages:
            self.memory.finish(self._past(past))

    def compact(self, past: Past, keep: Tensor) -> None:
        self.memory.compact(self._past(past), keep)

    def read(self, past: Past) -> tuple[Tensor, Tensor]:
        return self.memory.read(self._past(past))

    def _past(self, past: Past) -> Past:
        """The same slots, in pages of the pool."""
        return Past(np.array([self.pages], dtype=np.int32), past.ends)


class HeadSequence(PagedSequence):
    """Each KV head of each layer takes its own pages, so that an evicted token frees its slot whatever others keep.

    heads    [L][G]
    """

    table: SlotTable

    def __init__(self, pool: PagePool, table: SlotTable) -> None:
        super().__init__(pool, table)
        num_layers, num_heads = table.holes.shape
        self.heads = [[PooledHead(pool) for _ in range(num_heads)] for _ in range(num_layers)]

    @property
    def filled_pages(self) -> list[int]:
        return [page for head, length in self._with_lengths() for page in head.pages[: self._pages_of(length)]]

    @property
    def held_slots(self) -> int:
        return sum(head.page_size for row in self.heads for head in row)

    @property
    def evicted_slots(self) -> int:
        return 0

    @property
    def size_bytes(self) -> int:
        return self.held_slots // self.pool.page_size * self.pool.page_bytes

    def reserve(self, num_tokens: int) -> None:
        missing = sum(max(0, head.missing(length + num_tokens)) for head, length in self._with_lengths())
        if missing > self.pool.num_free:
            raise OutOfPages(f"{missing} pages are needed, {self.pool.num_free} are free")
        for head, length in self._with_lengths():
            if head.missing(length + num_tokens) > 0:
                head.resize(length + num_tokens)

    def trim(self) -> None:
        for head, length in self._with_lengths():
            head.resize(length)

    def is_held(self, layer: int) -> Tensor:
        """[G, S] bool: slots of a layer that hold a token"""
        return self.table.positions[layer, :, : self.table.held[layer]] >= 0

    def _with_lengths(self) -> Iterator[tuple[PooledHead, int]]:
        """Each head, and the tokens that it holds."""
        for layer, row in enumerate(self.heads):
            yield from zip(row, self.is_held(layer).sum(1).tolist(), strict=True)


class HeadPages(PoolPages):
    """Sequences whose heads take their pages from a pool."""

    sequences: list[HeadSequence]

    def __init__(self, pool: PagePool, sequences: Sequence[HeadSequence]) -> None:
        super().__init__(pool, sequences)
        self.layers = range(len(sequences[0].heads))
        self.memories = [
            HeadStorage([its.heads[layer] for its in sequences], [its.is_held(layer) for its in sequences])
            for layer in self.layers
        ]
        self.block_table = np.arange(self.batch, dtype=np.int32)[:, None]

    @property
    def size_bytes(self) -> int:
        return sum(sequence.size_bytes for sequence in self.sequences)

    def begin(self, counts: Sequence[int]) -> None:
        for sequence, count in zip(self.sequences, counts, strict=True):
            sequence.reserve(count)
