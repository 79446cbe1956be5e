"""Leading: rank 0 schedules, and each of its forward passes is an order to the other ranks."""

import time

import numpy as np

from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.caches.step import Step
from qbench.runtime.parallel.orders import Kind, send_order
from qbench.runtime.parallel.ranks import Ranks

NO_PAGES = np.empty((0, 0), np.int64)
FOLLOWING = "following"  # topic of a meeting: this rank leads or follows, so signals end no pass any more
IDLE_SHARE = 4  # orders that a rank without work gets within the time-out, so that a late one ends no run


class Leading:
    """The orders of rank 0.

    A forward pass runs over the newest pool or the newest cache of its own memory.

    idle_s   longest time without an order
    sent_at  monotonic time of the last order
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.idle_s = ranks.meeting.timeout_s / IDLE_SHARE
        self.sent_at = time.monotonic()
        self._own: Cache | None = None
        self._pool: PagePool | None = None
        self._copies: list[tuple[int, int]] = []  # pages copied since the last forward pass: source, target

    @property
    def left_s(self) -> float:
        """Seconds until the next order is due"""
        return max(0.0, self.sent_at + self.idle_s - time.monotonic())

    def _send(self, kind: Kind, *arrays: np.ndarray) -> None:
        send_order(self.ranks, kind, *arrays)
        self.sent_at = time.monotonic()

    def pool(self, pool: PagePool, num_sequences: int) -> None:
        """The other ranks make the same pool, in which pages have the same numbers."""
        self._pool, self._copies = pool, []
        pool.on_copy = lambda source, target: self._copies.append((source, target))
        self._send(Kind.POOL, np.array([pool.num_pages, pool.page_size, num_sequences]))

    def cache(self, cache: Cache, capacity: int) -> None:
        self._own = cache
        self._send(Kind.CACHE, np.array([cache.batch, capacity]))

    def forward(self, step: Step, cache: Cache, last_only: bool) -> None:
        """The other ranks run this forward pass, too; the cache has begun it, so its pages are chosen."""
        pages = NO_PAGES
        if cache is not self._own:
            assert self._pool is not None, "a forward pass over a cache that the other ranks do not have"
            assert isinstance(cache, KVCache)
            pages = cache.places.block_table
        counts = np.empty(0, np.int64) if step.counts is None else step.counts
        copies = np.array(self._copies, np.int64).reshape(-1, 2)
        self._copies.clear()
        flags = np.array([last_only])
        self._send(Kind.PASS, flags, step.tokens.numpy(), counts, cache.seq_lens, pages, copies)

    def idle(self) -> None:
        """To be called when there is no work. raises RankError for a rank that has ended meanwhile"""
        num_passes = self.ranks.traffic.num_passes
        place = f"after forward pass {num_passes}" if num_passes else "before the first forward pass"
        self.ranks.meeting.place = place
        for rank in range(1, self.ranks.layout.num_ranks):
            if self.ranks.meeting.has_ended(rank):
                raise self.ranks.meeting.error(rank, is_late=False)
        self._send(Kind.IDLE)

    def end(self) -> None:
        self._send(Kind.END)
