"""Sequences that have a pool to themselves: one that grows with them, or one of just the size of their window."""

from qbench.runtime.caches.places.pages import OutOfPages, PagedSequence, PagePool
from qbench.runtime.caches.step import EVICTED
from quant.errors import InputError


class GrowingSequence(PagedSequence):
    """Takes new pages into the pool if no page is free."""

    def reserve(self, num_tokens: int) -> None:
        while True:
            try:
                return super().reserve(num_tokens)
            except OutOfPages:
                self.pool.grow(2 * self.pool.num_pages)  # doubling: each token is copied once on average


class WindowSequence(PagedSequence):
    """Frees pages that no later query sees, when it holds more than `most_pages`.

    The oldest go first and no sooner than they must, so that `truncate` can go back by as many tokens as `most_pages`
    have room for next to the window, and to a marked length.

    window       tokens that a query sees, itself included
    most_pages   next to those of sinks
    num_sinks    tokens at the beginning that stay
    peak_pages   most pages that it held
    """

    def __init__(self, pool: PagePool, window: int, most_pages: int, num_sinks: int = 0) -> None:
        super().__init__(pool)
        self.window = window
        self.most_pages = most_pages
        self.peak_pages = 0
        self._first = self._pages_of(num_sinks)  # page that may go
        self._num_gone = self._first  # pages up to this one are gone
        self._marked: PagedSequence | None = None

    def reserve(self, num_tokens: int) -> None:
        self._evict(num_tokens)
        super().reserve(num_tokens)
        self.peak_pages = max(self.peak_pages or 0, len(self.pages) - self._num_evicted)

    def trim(self) -> None:
        super().trim()
        self._evict(0)

    def _evict(self, num_tokens: int) -> None:
        """Free the pages that have to go if so many tokens come next."""
        num_pages = self._pages_of(self.seq_len + num_tokens)
        unseen = max(0, self.seq_len + 1 - self.window) // self.pool.page_size
        for index in range(self._num_gone, min(unseen, num_pages - self.most_pages, len(self.pages))):
            self.pool.release(self.pages[index])
            self.pages[index] = EVICTED
            self._num_gone = index + 1

    @property
    def frees_pages(self) -> bool:
        return True

    @property
    def _num_evicted(self) -> int:
        return self._num_gone - self._first

    def mark(self) -> None:
        """Keep the present pages until the next mark, in a pool that grows by as many."""
        if self._marked is not None:
            self._marked.release()
        self._marked = self.fork()
        held = len(self.pages) - self._num_evicted
        if self.pool.num_free < held:
            self.pool.grow(self.pool.num_pages + held - self.pool.num_free)

    def check_truncate(self, seq_len: int) -> None:
        super().check_truncate(seq_len)
        if self._is_marked(seq_len):
            return
        first_seen = max(0, seq_len + 1 - self.window)
        is_gone = first_seen < self._num_gone * self.pool.page_size and self._num_evicted > 0
        if is_gone and seq_len > self._first * self.pool.page_size:
            raise InputError(
                f"truncate to {seq_len}, whose window begins at token {first_seen}, but of {self.seq_len} tokens those "
                f"before {self._num_gone * self.pool.page_size} are gone; go back to 0 or to a marked length"
            )

    def truncate(self, seq_len: int) -> None:
        if self._is_marked(seq_len):
            assert self._marked is not None
            self.check_truncate(seq_len)
            self._release_from(0)
            self.pages, self.seq_len = self._marked.fork().pages, seq_len
            self._num_gone = self._first + self.pages.count(EVICTED)
            return
        if self._marked is not None and seq_len < self._marked.seq_len:
            self._marked.release()  # other tokens may follow
            self._marked = None
        super().truncate(seq_len)
        self._num_gone = max(self._first, min(self._num_gone, len(self.pages)))

    def _is_marked(self, seq_len: int) -> bool:
        return self._marked is not None and self._marked.seq_len == seq_len


def window_pages(window: int, max_chunk_tokens: int, page_size: int) -> int:
    """Pages that hold the tokens that `max_chunk_tokens` new tokens see: window - 1 before them, beginning anywhere in
    a page.
    """
    return -(-(window - 1 + max_chunk_tokens) // page_size) + 1
