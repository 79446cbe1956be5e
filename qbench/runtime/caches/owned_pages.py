"""Sequences that have a pool to themselves: one that grows with them, or one of just the size of their window."""

from qbench.runtime.caches.pages import OutOfPages, PagedSequence, PagePool
from qbench.runtime.caches.past import EVICTED
from quant.errors import InputError


class GrowingSequence(PagedSequence):
    """Takes new pages into the pool where none is free."""

    def reserve(self, num_tokens: int) -> None:
        while True:
            try:
                return super().reserve(num_tokens)
            except OutOfPages:
                self.pool.grow(2 * self.pool.num_pages)  # doubling: each token is copied once on average


class WindowSequence(PagedSequence):
    """Frees pages that no later query sees, once it holds `most_pages`.

    The oldest go first and no sooner than they must, so that `truncate` can go back by as many tokens as there is room
    for beside the window.

    window       tokens that a query sees, itself included
    most_pages   beside those of sinks
    num_sinks    tokens at the beginning that stay
    """

    def __init__(self, pool: PagePool, window: int, most_pages: int, num_sinks: int = 0) -> None:
        super().__init__(pool)
        self.window = window
        self.most_pages = most_pages
        self._first = self._pages_of(num_sinks)  # page that may go
        self._num_gone = self._first  # pages up to this one are gone

    def reserve(self, num_tokens: int) -> None:
        num_pages = self._pages_of(self.seq_len + num_tokens)
        unseen = max(0, self.seq_len + 1 - self.window) // self.pool.page_size
        for index in range(self._num_gone, min(unseen, num_pages - self.most_pages)):
            self.pool.release(self.pages[index])
            self.pages[index] = EVICTED
            self._num_gone = index + 1
        super().reserve(num_tokens)

    def check_truncate(self, seq_len: int) -> None:
        super().check_truncate(seq_len)
        first_seen = max(0, seq_len + 1 - self.window)
        is_gone = first_seen < self._num_gone * self.pool.page_size and self._num_gone > self._first
        if is_gone and seq_len > self._first * self.pool.page_size:
            raise InputError(
                f"truncate to {seq_len}, whose window begins at token {first_seen}, but of {self.seq_len} tokens those "
                f"before {self._num_gone * self.pool.page_size} are gone"
            )

    def truncate(self, seq_len: int) -> None:
        super().truncate(seq_len)
        self._num_gone = max(self._first, min(self._num_gone, len(self.pages)))


def window_pages(window: int, max_chunk_tokens: int, page_size: int) -> int:
    """Pages that hold what `max_chunk_tokens` new tokens see: window - 1 before them, beginning anywhere in a page."""
    return -(-(window - 1 + max_chunk_tokens) // page_size) + 1
