"""SwapSpace: pages of requests that had to make room, kept outside the pool until those go on."""

from dataclasses import dataclass
from typing import Any

from qbench.runtime.caches.pages import PagedSequence, PagePool
from qbench.runtime.caches.past import EVICTED
from qbench.runtime.caches.slot_table import SlotTable


@dataclass(frozen=True, slots=True)
class Swapped:
    """A sequence outside the pool.

    pages    the bytes of each, in order
    seq_len  tokens that it has seen
    table    the tokens that a policy keeps; None: all
    """

    pages: list[Any]
    seq_len: int
    table: SlotTable | None = None


class SwapSpace:
    """max_bytes: of all pages that are out at once; 0: none ever are

    num_pages            that are out now
    num_out, num_in      pages that were copied out and back, since the space was made
    """

    def __init__(self, pool: PagePool, max_bytes: int) -> None:
        self.pool = pool
        self.max_pages = max_bytes // pool.page_bytes
        self.num_pages = self.num_out = self.num_in = 0

    def save(self, sequence: PagedSequence) -> Swapped | None:
        """A copy of the sequence's pages; None if there is no room for it, or if a window has freed some."""
        pages = sequence.filled_pages
        if self.num_pages + len(pages) > self.max_pages or EVICTED in pages:
            return None
        self.num_pages += len(pages)
        self.num_out += len(pages)
        table = None if sequence.table is None else sequence.table.copy()
        return Swapped([self.pool.save(page) for page in pages], sequence.seq_len, table)

    def restore(self, sequence: PagedSequence, swapped: Swapped) -> None:
        """Make the sequence what it was, in pages that it has to itself but for full ones that it holds already."""
        first = 0 if swapped.table is not None else sequence.seq_len // self.pool.page_size
        sequence.seq_len = swapped.seq_len
        for page, saved in zip(sequence.filled_pages[first:], swapped.pages[first:], strict=True):
            self.pool.load(page, saved)
            self.num_in += 1

    def drop(self, swapped: Swapped) -> None:
        self.num_pages -= len(swapped.pages)
