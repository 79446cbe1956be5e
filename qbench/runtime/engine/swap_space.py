"""SwapSpace: pages of requests that had to make room, kept outside the pool until those go on."""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from qbench.runtime.caches.places.pages import PagedSequence, PagePool
from qbench.runtime.caches.places.slot_table import SlotTable
from qbench.runtime.tiers.spill_file import SpillFile
from quant.present import present


@dataclass(frozen=True, slots=True)
class Swapped:
    """A sequence outside the pool.

    pages    the bytes of each, in order
    seq_len  tokens that it has seen
    table    the tokens that a policy keeps; None: all
    ring     the recent tokens, if they are apart from the pages
    """

    pages: list[Any]
    seq_len: int
    table: SlotTable | None = None
    ring: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A page in a slot of the spill file."""

    slot: int


class SwapSpace:
    """Pages go to memory as long as it has room, then to the disk.

    max_bytes   of memory for all pages that are out at once; 0: no page is ever out
    disk_bytes  of the disk, likewise

    num_pages            that are out now, with those that the recent tokens of sequences would fill
    num_on_disk          pages among them that are on the disk
    num_out, num_in      pages that were copied out and back, since the space was made
    """

    def __init__(self, pool: PagePool, max_bytes: int, disk_bytes: int = 0) -> None:
        self.pool = pool
        self.max_pages = max_bytes // pool.page_bytes
        self.num_pages = self.num_on_disk = self.num_out = self.num_in = 0
        self._ring_pages = -(-pool.ring_bytes // pool.page_bytes)  # that take as many bytes as a ring
        self._spill = SpillFile(None, pool.block_bytes, disk_bytes) if disk_bytes else None
        self._max_on_disk = 0 if self._spill is None else self._spill.num_slots

    def save(self, sequence: PagedSequence) -> Swapped | None:
        """A copy of the sequence's pages; None if there is no room for it, or if it cannot leave them."""
        pages = sequence.filled_pages
        needed = len(pages) + self._ring_pages
        if self.num_pages + needed > self.max_pages + self._max_on_disk or not sequence.can_leave:
            return None
        num_in_memory = max(0, self.max_pages - (self.num_pages - self.num_on_disk))
        table = None if sequence.table is None else sequence.table.copy()
        ring = None if sequence.ring is None else self.pool.save_ring(sequence.ring)
        swapped = Swapped([], sequence.seq_len, table, ring)
        self.num_pages += self._ring_pages
        try:
            for index, page in enumerate(pages):
                swapped.pages.append(self.pool.save(page) if index < num_in_memory else self._write(page))
                self.num_pages += 1
        except OSError as error:  # a full disk: the request computes its pages again
            logging.getLogger(__name__).warning("cannot swap pages to the disk: %s", error.strerror or error)
            self.drop(swapped)
            return None
        self.num_out += len(pages)
        return swapped

    def restore(self, sequence: PagedSequence, swapped: Swapped) -> None:
        """Restore the sequence, in pages of its own except for full ones that it already holds."""
        first = 0 if swapped.table is not None else sequence.seq_len // self.pool.page_size
        sequence.seq_len = swapped.seq_len
        if swapped.ring is not None:
            self.pool.load_ring(present(sequence.ring), swapped.ring)
        for page, saved in zip(sequence.filled_pages[first:], swapped.pages[first:], strict=True):
            if isinstance(saved, OnDisk):
                self.pool.fill(page, present(self._spill).read(saved.slot))
            else:
                self.pool.load(page, saved)
            self.num_in += 1

    def drop(self, swapped: Swapped) -> None:
        self.num_pages -= len(swapped.pages) + self._ring_pages
        for saved in swapped.pages:
            if isinstance(saved, OnDisk):
                present(self._spill).release(saved.slot)
                self.num_on_disk -= 1

    def _write(self, page: int) -> OnDisk:
        spill = present(self._spill)
        slot, data = present(spill.allocate()), np.empty(self.pool.block_bytes, dtype=np.uint8)
        self.pool.dump(page, data)
        try:
            spill.write(slot, data)
        except OSError:
            spill.release(slot)
            raise
        self.num_on_disk += 1
        return OnDisk(slot)
