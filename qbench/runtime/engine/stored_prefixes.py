"""`StoredPrefixes`: full pages of a prefix tree in a `BlockStore`, written and read by threads of their own."""

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

import numpy as np

from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.engine.hash_chain import HashChain
from qbench.runtime.tiers.block_store import BlockKey, BlockNote, BlockStore, BlockStoreCounts, CorruptBlock
from quant.json_data import JsonData

QUEUE_BYTES = 256 << 20  # copies of pages that wait for the disk: 4096 tokens of a 1.1B model in float32 take 184 MB
TOUCH_EVERY_S = 10.0  # a chain that grows is marked as used so often
WAIT_S = 0.05  # for pages, if nothing else is to do; commands of the server's clients wait as long
# Passes of fewer tokens mostly measure reading the weights, which a prompt's longer passes share among their tokens.
LEAST_TOKENS = 32
MEMORY_TOKENS = 8192  # older tokens count half: the rate follows the machine's load


@dataclass(frozen=True, slots=True)
class StoreStats(JsonData):
    """Since the engine was made.

    hits             requests that got pages from the store
    hit_tokens       tokens of those pages
    loaded_bytes     of those pages
    load_s           seconds from the request for pages to their arrival, of all hits
    saved_s          seconds that computing those tokens would have taken, by the measured rate, minus `load_s`
    slow_hits        hits that took longer than computing would have
    skipped_blocks   times that a page was not written because too many wait for the disk
    waiting_blocks   that wait for the disk now
    blocks           of the store; corrupt ones are computed again
    """

    json_flat: ClassVar[tuple[str, ...]] = ("blocks",)

    hits: int = 0
    hit_tokens: int = 0
    loaded_bytes: int = 0
    load_s: float = 0.0
    saved_s: float = 0.0
    slow_hits: int = 0
    skipped_blocks: int = 0
    waiting_blocks: int = 0
    blocks: BlockStoreCounts = field(default_factory=BlockStoreCounts)

    def __add__(self, other: "StoreStats") -> "StoreStats":
        """Those of two engines."""
        return StoreStats(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


class Loading:
    """Pages of one sequence that the reader fills, in order, up to the first that the store does not have.

    first        number of the first page in its chain
    num_loaded   pages that are filled
    computed_at  when the oldest of them was computed, seconds since 1970
    compute_s    seconds that computing them took, by the notes of the store; 0: unknown
    seconds      from the request to the end
    """

    def __init__(self, store: BlockStore, pool: PagePool, keys: Sequence[BlockKey], pages: Sequence[int]) -> None:
        self.first = keys[0].depth
        self.num_loaded, self.computed_at, self.compute_s, self.seconds = 0, time.time(), 0.0, 0.0
        self._store, self._pool, self._work = store, pool, list(zip(keys, pages, strict=True))
        self._begin = time.perf_counter()
        self._lock, self._done, self._is_cancelled = threading.Lock(), threading.Event(), False

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def run(self, oldest: float) -> None:
        """In the reader's thread. oldest: blocks that were computed before are not used"""
        data = np.empty(self._store.block_bytes, dtype=np.uint8)
        try:
            for key, page in self._work:
                with self._lock:
                    if self._is_cancelled or not self._load(key, page, data, oldest):
                        break
        finally:
            self.seconds = time.perf_counter() - self._begin
            self._done.set()

    def _load(self, key: BlockKey, page: int, data: np.ndarray, oldest: float) -> bool:
        try:
            note = self._store.get(key, data)
        except CorruptBlock:
            return False
        if note is None or note.computed_at < oldest:
            return False
        self._pool.fill(page, data)
        self.num_loaded += 1
        self.computed_at = min(self.computed_at, note.computed_at)
        self.compute_s += note.compute_s
        return True

    def cancel(self) -> None:
        """When this returns, no page is written to any more."""
        with self._lock:
            self._is_cancelled = True


@dataclass(frozen=True, slots=True)
class _Job:
    """Work of the writer: put a block, or mark a chain as used if there is no data."""

    number: int
    keys: list[BlockKey]
    data: np.ndarray | None = None
    note: BlockNote | None = None


class StoredPrefixes:
    """One thread calls all methods.

    max_age_s   older blocks are not used; None: all are
    """

    def __init__(
        self, store: BlockStore, pool: PagePool, *, max_age_s: float | None = None, queue_bytes: int = QUEUE_BYTES
    ) -> None:
        self.store, self.pool, self.max_age_s, self.queue_bytes = store, pool, max_age_s, queue_bytes
        self.rate = PrefillRate()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._number = 0
        self._forgotten: dict[bytes, int] = {}  # root -> number of the last job that must not be done
        self._waiting: set[bytes] = set()  # digests of blocks that wait for the disk
        self._writing = threading.Lock()
        self._arrived = threading.Event()
        self._hits = self._hit_tokens = self._slow_hits = self._skipped = 0
        self._load_s = self._saved_s = 0.0
        self._loaded_blocks = 0
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="kv-reader")
        self._writer = threading.Thread(target=self._write, name="kv-writer", daemon=True)
        self._writer.start()

    def load(self, chain: HashChain, tokens: Sequence[int], first: int, pages: Sequence[int]) -> Loading | None:
        """Begin to fill the pages of a sequence from number `first` on; None if the store has no such block.

        At least one of `tokens` is left out, as by `PrefixTree.match`.
        """
        num_full = (len(tokens) - 1) // self.pool.page_size
        keys = []
        for key in self._keys(chain, tokens, first, num_full):
            if not self.store.has(key):
                break
            keys.append(key)
        if not keys:
            return None
        loading = Loading(self.store, self.pool, keys, pages[first : first + len(keys)])
        self._reader.submit(self._run, loading)
        return loading

    def arrived(self, loading: Loading, num_tokens: int) -> None:
        """Count a hit of so many tokens that need not be computed now."""
        if not num_tokens:
            return
        self._hits += 1
        self._hit_tokens += num_tokens
        self._loaded_blocks += loading.num_loaded
        self._load_s += loading.seconds
        compute_s = num_tokens * self.rate.seconds_per_token or loading.compute_s
        if compute_s:
            self._saved_s += compute_s - loading.seconds
            self._slow_hits += loading.seconds > compute_s

    def keep(self, chain: HashChain, tokens: Sequence[int], pages: Sequence[int], first: int, age_s: float) -> int:
        """Store the full pages of `tokens` from number `first` on.

        age_s    since the oldest of them was computed
        returns  the number up to which all are stored or wait for it
        """
        num_full = len(tokens) // self.pool.page_size
        note = BlockNote(time.time() - age_s, self.pool.page_size * self.rate.seconds_per_token)
        for key in self._keys(chain, tokens, first, num_full):
            if key.digest not in self._waiting and not self.store.has(key):
                if (len(self._waiting) + 1) * self.store.block_bytes > self.queue_bytes:
                    self._skipped += 1
                    return key.depth
                data = np.empty(self.store.block_bytes, dtype=np.uint8)
                self.pool.dump(pages[key.depth], data)
                self._waiting.add(key.digest)
                self._add([key], data, note)
        return num_full

    def touch(self, chain: HashChain, tokens: Sequence[int], num_pages: int) -> None:
        """The first pages of `tokens` are used."""
        self._add(self._keys(chain, tokens, 0, num_pages))

    def forget(self, version: str | None) -> None:
        """Delete all blocks of a version, those among them that wait for the disk."""
        root = HashChain(self.pool.page_size, version).root
        self._forgotten[root] = self._number
        with self._writing:
            self.store.delete(root)

    def wait(self) -> None:
        """Until pages arrive, but not for long."""
        self._arrived.wait(WAIT_S)
        self._arrived.clear()

    def stats(self) -> StoreStats:
        return StoreStats(
            hits=self._hits,
            hit_tokens=self._hit_tokens,
            loaded_bytes=self._loaded_blocks * self.store.block_bytes,
            load_s=self._load_s,
            saved_s=self._saved_s,
            slow_hits=self._slow_hits,
            skipped_blocks=self._skipped,
            waiting_blocks=len(self._waiting),
            blocks=replace(self.store.counts),  # they go on
        )

    def close(self) -> None:
        """Returns when all blocks are stored that wait for it."""
        self._jobs.put(None)
        self._writer.join()
        self._reader.shutdown()

    def _keys(self, chain: HashChain, tokens: Sequence[int], first: int, end: int) -> list[BlockKey]:
        digests = chain.digests(tokens)
        return [BlockKey(chain.root, digests[index], index) for index in range(first, end)]

    def _run(self, loading: Loading) -> None:
        loading.run(-np.inf if self.max_age_s is None else time.time() - self.max_age_s)
        self._arrived.set()

    def _add(self, keys: list[BlockKey], data: np.ndarray | None = None, note: BlockNote | None = None) -> None:
        if keys:
            self._number += 1
            self._jobs.put(_Job(self._number, keys, data, note))

    def _write(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._writing:
                if job.number > self._forgotten.get(job.keys[0].root, 0):
                    if job.data is None or job.note is None:
                        self.store.touch(job.keys)
                    else:
                        self.store.put(job.keys[0], job.data, job.note)
            if job.data is not None:
                self._waiting.discard(job.keys[0].digest)


class PrefillRate:
    """seconds_per_token   0.0 as long as nothing has been measured"""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def add(self, num_tokens: int, seconds: float) -> None:
        """A forward pass took so long."""
        if num_tokens < LEAST_TOKENS:
            return
        if self._tokens > MEMORY_TOKENS:
            self._tokens, self._seconds = self._tokens / 2, self._seconds / 2
        self._tokens += num_tokens
        self._seconds += seconds

    @property
    def seconds_per_token(self) -> float:
        return self._seconds / self._tokens if self._tokens else 0.0
