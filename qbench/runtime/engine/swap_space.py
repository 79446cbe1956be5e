"""SwapSpace: pages of requests that had to make room, kept outside the pool until those go on."""

from dataclasses import dataclass

from qbench.runtime.caches.page_memory import PageBytes
from qbench.runtime.caches.pages import PagedSequence, PagePool


@dataclass(frozen=True, slots=True)
class Swapped:
    """pages: the bytes of each, in order; length: tokens in them"""

    pages: list[PageBytes]
    seq_len: int


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
        """A copy of the sequence's pages; None where there is no room for it."""
        pages = sequence.pages[: -(-sequence.seq_len // self.pool.page_size)]
        if self.num_pages + len(pages) > self.max_pages:
            return None
        self.num_pages += len(pages)
        self.num_out += len(pages)
        return Swapped([self.pool.memory.save(page) for page in pages], sequence.seq_len)

    def restore(self, sequence: PagedSequence, swapped: Swapped) -> None:
        """Make the sequence what it was, in pages that it has to itself but for full ones that it holds already."""
        first = sequence.seq_len // self.pool.page_size
        for page, saved in zip(sequence.pages[first:], swapped.pages[first:], strict=False):  # more are reserved
            self.pool.memory.load(page, saved)
            self.num_in += 1
        sequence.seq_len = swapped.seq_len

    def drop(self, swapped: Swapped) -> None:
        self.num_pages -= len(swapped.pages)
