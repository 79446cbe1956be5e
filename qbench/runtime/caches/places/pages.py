"""Pages: room for a few tokens each, in every layer, that any sequence may hold and several may share."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from qbench.runtime.caches.places.slot_table import SlotTable
from qbench.runtime.caches.step import EVICTED
from qbench.runtime.caches.storage.kv_storage import BLOCK_TOKENS
from qbench.runtime.caches.storage.storages import make_memories
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig


class OutOfPages(RuntimeError):
    """More pages were asked for than are free; nothing was taken."""


class PagePool:
    """Pages of `page_size` tokens, each free or held by one or more; any page serves any sequence.

    A page is written to only by its one holder: who shares it and wants to write copies it before.

    scheme   format of keys and values; None: float32
    impl     "auto": in cpu_kernels' stores if those hold the format; "reference": in torch
    mode     of latent attention, None: as `chosen_latents` has it
    layers   that the pages hold; None: all
    num_sequences  most sequences that have pages at once, if no two share one; None: any number, which may share pages
    evicts   whether a policy takes tokens out of the pages of a sequence
    memories one per layer
    num_rings, by_sequence  as of a `PageMemory`
    on_copy  called with the numbers of a page and of its copy
    raises   InputError for impossible sizes, or a format that encodes several tokens together if sequences share pages:
             one sequence would read tokens as encoded that are still floats for another one
    source   Kwon et al. 2023, arXiv:2309.06180, section 4
    """

    on_copy: Callable[[int, int], None] | None = None

    def __init__(
        self,
        config: ModelConfig,
        scheme: KVScheme | None,
        num_pages: int,
        page_size: int = BLOCK_TOKENS,
        *,
        impl: str = "auto",
        mode: str | None = None,
        layers: Sequence[int] | None = None,
        num_sequences: int | None = None,
        evicts: bool = False,
    ) -> None:
        if num_pages < 1 or page_size < 1 or page_size % BLOCK_TOKENS:
            raise InputError(
                f"{num_pages} pages of {page_size} tokens, expected 1 or more, of a multiple of {BLOCK_TOKENS} tokens"
            )
        self.config = config
        self.num_pages = num_pages
        self.page_size = page_size
        self.impl = impl
        self.layers = range(config.num_layers) if layers is None else layers
        self.num_sequences = num_sequences
        how = {"layers": self.layers, "num_sequences": num_sequences, "evicts": evicts}
        self.mode, self.memories = make_memories(config, scheme, num_pages, page_size, impl=impl, mode=mode, **how)
        self.num_rings, self.by_sequence = self.memories[0].num_rings, self.memories[0].by_sequence
        self._references = [0] * num_pages
        self._free = list(range(num_pages))[::-1]
        self._free_rings = list(range(self.num_rings))[::-1]

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page, over all layers."""
        return round(self.page_size * sum(memory.bytes_per_token for memory in self.memories))

    @property
    def ring_bytes(self) -> int:
        """Bytes of a ring, over all layers."""
        return sum(memory.ring_bytes for memory in self.memories)

    def pages_for(self, num_slots: int) -> int:
        """Pages that so many slots of one sequence take, at most."""
        return self.memories[0].pages_for(num_slots)

    def grow(self, num_pages: int) -> None:
        """So many pages from now on, those that there are among them."""
        if num_pages < self.num_pages:
            raise ValueError(f"grow to {num_pages} pages, expected {self.num_pages} or more")
        for memory in self.memories:
            memory.add_pages(num_pages)
        self._free = [*range(num_pages - 1, self.num_pages - 1, -1), *self._free]
        self._references += [0] * (num_pages - self.num_pages)
        self.num_pages = num_pages

    def references(self, page: int) -> int:
        """How many hold the page; 0: it is free."""
        return self._references[page]

    def allocate(self) -> int:
        """A free page, held once; raises OutOfPages if no page is free."""
        if not self._free:
            raise OutOfPages(f"all {self.num_pages} pages are held")
        page = self._free.pop()
        self._references[page] = 1
        return page

    def retain(self, page: int) -> None:
        """One more holds the page."""
        self._check_held(page)
        self._references[page] += 1

    def release(self, page: int) -> None:
        """Remove one reference to the page; it is free if that was the last."""
        self._check_held(page)
        self._references[page] -= 1
        if not self._references[page]:
            self._free.append(page)
            if self.by_sequence:
                for memory in self.memories:
                    memory.free_page(page)

    def allocate_ring(self) -> int:
        """A ring that no sequence has; raises OutOfPages if all are taken."""
        if not self._free_rings:
            raise OutOfPages(f"all {self.num_rings} rings are held")
        return self._free_rings.pop()

    def release_ring(self, ring: int) -> None:
        self._free_rings.append(ring)

    def copy(self, page: int) -> int:
        """A new page, held once, with the tokens of another; raises OutOfPages."""
        self._check_held(page)
        new = self.allocate()
        for memory in self.memories:
            memory.copy_page(page, new)
        if self.on_copy is not None:
            self.on_copy(page, new)
        return new

    def save(self, page: int) -> list[Any]:
        """A copy of a page's bytes, of every layer."""
        return [memory.save_page(page) for memory in self.memories]

    def load(self, page: int, saved: list[Any]) -> None:
        """Put a result of `save` into a page."""
        for memory, data in zip(self.memories, saved, strict=True):
            memory.load_page(page, data)

    def save_ring(self, ring: int) -> list[Any]:
        """A copy of a ring's bytes, of every layer."""
        return [memory.save_ring(ring) for memory in self.memories]

    def load_ring(self, ring: int, saved: list[Any]) -> None:
        """Put a result of `save_ring` into a ring."""
        for memory, data in zip(self.memories, saved, strict=True):
            memory.load_ring(ring, data)

    @property
    def layout(self) -> str:
        """Name and version of how `dump` writes a page."""
        return self.memories[0].layout

    @property
    def block_bytes(self) -> int:
        """Bytes that `dump` writes."""
        return sum(memory.page_bytes for memory in self.memories)

    def dump(self, page: int, out: np.ndarray) -> None:
        """Copy a page's bytes, of every layer, to `out` [block_bytes] uint8."""
        for memory, data in zip(self.memories, self._by_layer(out), strict=True):
            memory.dump_page(page, data)

    def fill(self, page: int, data: np.ndarray) -> None:
        """Restore the bytes from `dump` into a page that nobody reads; other threads may use other pages meanwhile."""
        self._check_held(page)
        for memory, its in zip(self.memories, self._by_layer(data), strict=True):
            memory.fill_page(page, its)

    def _by_layer(self, data: np.ndarray) -> Iterator[np.ndarray]:
        start = 0
        for memory in self.memories:
            yield data[start : start + memory.page_bytes]
            start += memory.page_bytes

    def _check_held(self, page: int) -> None:
        if not 0 <= page < self.num_pages or not self._references[page]:
            raise ValueError(f"page {page} is held by nobody")


class PagedSequence:
    """The pages of one sequence, in order.

    pages    may be more than the tokens need, and EVICTED if no query sees a page any more; those that are shared are
             copied before they are written to
    seq_len  tokens that it has seen
    table    the tokens that a policy keeps; None: all, or those of pages that are not EVICTED
    ring     of the pool, if that has rings and the sequence has tokens
    peak_pages  most pages that it held; None: never more than in the end
    """

    peak_pages: int | None = None
    ring: int | None = None

    def __init__(self, pool: PagePool, table: SlotTable | None = None) -> None:
        self.pool, self.table = pool, table
        self.pages: list[int] = []
        self.seq_len = 0

    @property
    def can_leave(self) -> bool:
        """Whether the pages have all that a sequence needs to go on elsewhere."""
        return EVICTED not in self.filled_pages

    @property
    def parts(self) -> "list[PagedSequence]":
        """Its tokens in each group of layers that has pages of its own"""
        return [self]

    @property
    def num_slots(self) -> int:
        """Slots in use, those of evicted pages among them."""
        return self.seq_len if self.table is None else self.table.longest

    @property
    def filled_pages(self) -> list[int]:
        """Pages of the slots in use."""
        return self.pages[: self._pages_of(self.num_slots)]

    @property
    def held_slots(self) -> int:
        """Slots of held pages in all layers, if a policy evicts tokens; else 0."""
        return 0 if self.table is None else self.table.longest * len(self.table.held)

    @property
    def evicted_slots(self) -> int:
        """Those of `held_slots` whose tokens are evicted, while another layer holds the page."""
        return 0 if self.table is None else self.table.num_evicted

    def reserve(self, num_tokens: int) -> None:
        """Pages of its own for so many tokens more; raises OutOfPages, and then nothing has changed."""
        pool, size = self.pool, self.pool.page_size
        first = self.num_slots // size  # the first page that is written to
        last = self.num_slots + num_tokens if self.table is None else self.table.longest_with(num_tokens)
        num_pages = self._pages_of(last)
        shared = [i for i in range(first, min(num_pages, len(self.pages))) if pool.references(self.pages[i]) > 1]
        missing = num_pages - len(self.pages)
        if max(missing, 0) + len(shared) > pool.num_free:
            raise OutOfPages(f"{max(missing, 0) + len(shared)} pages are needed, {pool.num_free} are free")
        if pool.num_rings and self.ring is None:
            self.ring = pool.allocate_ring()
        for i in shared:
            holds_tokens = i == first and self.num_slots % size
            own = pool.copy(self.pages[i]) if holds_tokens else pool.allocate()
            pool.release(self.pages[i])
            self.pages[i] = own
        self.pages += [pool.allocate() for _ in range(missing)]

    @property
    def frees_pages(self) -> bool:
        """Whether `trim` is to be called after each forward pass."""
        return self.table is not None

    def mark(self) -> None:
        """Make `truncate` to the present length possible later; all pages that it needs are kept."""

    def trim(self) -> None:
        """Free the pages that are no longer needed, behind the slots in use."""
        self._release_from(self._pages_of(self.num_slots))

    def fork(self) -> "PagedSequence":
        """Another sequence of the same tokens, in the same pages until one of the two writes."""
        assert self.table is None and not self.pool.by_sequence and not self.pool.num_rings, "pages of one sequence"
        child = PagedSequence(self.pool)
        child.seq_len = self.seq_len
        child.pages = self.pages[: self._pages_of(self.seq_len)]
        for page in child.pages:
            if page != EVICTED:
                self.pool.retain(page)
        return child

    def truncate(self, seq_len: int) -> None:
        """Forget the tokens from `seq_len` on, and free the pages that held nothing else."""
        self.check_truncate(seq_len)
        if self.table is not None and seq_len == 0:
            self.table.clear()
        self.seq_len = seq_len
        self.trim()
        if seq_len == 0 and self.ring is not None:
            self.pool.release_ring(self.ring)
            self.ring = None

    def _release_from(self, first: int) -> None:
        for page in self.pages[first:]:
            if page != EVICTED:
                self.pool.release(page)
        del self.pages[first:]

    def check_truncate(self, seq_len: int) -> None:
        """raises ValueError for a length that it cannot go back to"""
        if not 0 <= seq_len <= self.seq_len:
            raise ValueError(f"truncate to {seq_len}, expected 0 to {self.seq_len}")
        stays = self.table is not None or self.pool.by_sequence or self.pool.num_rings
        assert not stays or seq_len in (0, self.seq_len), "tokens are evicted, or encoded together"

    def release(self) -> None:
        """Give all pages back."""
        self.truncate(0)

    def _pages_of(self, seq_len: int) -> int:
        return self.pool.pages_for(seq_len)
