"""Prefixes that an engine finds in a block store, where another engine has put them."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from support.engine_runs import GREEDY, alone, assert_no_page_is_lost, prompt, run, tokens_of

from qbench.runtime.engine import Engine, EngineOptions, Request
from qbench.runtime.tiers.block_store import BlockKey, BlockNote, BlockStore, BlockStoreCounts, CorruptBlock


class MemoryStore(BlockStore):
    """corrupt  digests of blocks whose checksum is wrong"""

    def __init__(self, block_bytes: int) -> None:
        self.block_bytes, self.counts = block_bytes, BlockStoreCounts()
        self.blocks: dict[BlockKey, tuple[np.ndarray, BlockNote]] = {}
        self.corrupt: set[bytes] = set()
        self.touched: list[list[BlockKey]] = []
        self._is_fast = threading.Event()
        self._is_fast.set()

    @contextmanager
    def slow(self) -> Iterator[None]:
        """No block is read or written before the end."""
        self._is_fast.clear()
        try:
            yield
        finally:
            self._is_fast.set()

    def has(self, key: BlockKey) -> bool:
        return key in self.blocks

    def get(self, key: BlockKey, out: np.ndarray) -> BlockNote | None:
        self._is_fast.wait()
        if key not in self.blocks:
            return None
        if key.digest in self.corrupt:
            self.corrupt.remove(key.digest)
            del self.blocks[key]
            self.counts.corrupt_blocks += 1
            raise CorruptBlock("as asked for")
        data, note = self.blocks[key]
        out[:] = data
        return note

    def put(self, key: BlockKey, data: np.ndarray, note: BlockNote) -> bool:
        self._is_fast.wait()
        self.blocks[key] = (data.copy(), note)
        self.counts.written_blocks += 1
        self.counts.written_bytes += data.nbytes
        return True

    def touch(self, keys: Sequence[BlockKey]) -> None:
        self.touched.append(list(keys))

    def delete(self, root: bytes) -> None:
        self.blocks = {key: block for key, block in self.blocks.items() if key.root != root}


OPTIONS = EngineOptions(num_pages=32)
FORMATS = [None, "kv-f16", "kv-bf16", "kv-fp8", "kv-fp8-tensor", "kv-fp8-e5m2", "kv-int8", "kv-int4"]


def served(model, store: list, request: Request, options: EngineOptions = OPTIONS):
    """The text, and the statistics of a new engine over the store, which is made by the first."""

    def open_store(pool):
        return store[0] if store else store.append(MemoryStore(pool.block_bytes)) or store[0]

    engine = Engine(model, options, open_store=open_store)
    id = engine.submit(request)
    text = tokens_of(run(engine))[id]
    engine.close()
    stats = engine.stats()
    assert_no_page_is_lost(engine)
    return text, stats


@pytest.mark.parametrize("kv", FORMATS, ids=str)
def test_another_engine_finds_computed_pages_and_writes_the_same_text(load, kv):
    model, store, request = load(kv), [], Request(prompt(1, 70), GREEDY, 12, stop_ids=())
    first, before = served(model, store, request)
    again, stats = served(model, store, request)
    assert first == again == alone(model, request)
    assert before.store.hits == 0 and before.store.blocks.written_blocks == (70 + 11) // 16
    assert (stats.store.hits, stats.store.hit_tokens) == (1, 64)
    assert stats.computed_tokens == 70 + 11 - 64
    assert stats.store.loaded_bytes == 4 * store[0].block_bytes


def test_a_page_in_torch(model):
    model = model.attending("textbook")
    store, request = [], Request(prompt(1, 70), GREEDY, 12, stop_ids=())
    first, _ = served(model, store, request)
    again, stats = served(model, store, request)
    assert first == again and stats.store.hit_tokens == 64


def test_versions_are_apart_and_are_deleted_apart(model):
    store = []
    one, other = (Request(prompt(1, 70), GREEDY, 4, stop_ids=(), version=version) for version in ("1", "2"))
    served(model, store, one)
    assert served(model, store, other)[1].store.hits == 0
    engine = Engine(model, OPTIONS, open_store=lambda pool: store[0])
    engine.forget("1")
    engine.close()
    assert served(model, store, one)[1].store.hits == 0
    assert served(model, store, other)[1].store.hits == 1


def test_pages_that_wait_for_the_disk_are_forgotten_too(model):
    store = []
    engine = Engine(model, OPTIONS, open_store=lambda pool: store.append(MemoryStore(pool.block_bytes)) or store[0])
    with store[0].slow():
        engine.submit(Request(prompt(1, 70), GREEDY, 4, stop_ids=(), version="1"))
        run(engine)
        assert engine.stats().store.waiting_blocks == 4
        threading.Timer(0.05, store[0]._is_fast.set).start()  # the block that is being written
        engine.forget("1")
    engine.close()
    assert not store[0].blocks and store[0].counts.written_blocks <= 1


def test_a_corrupt_block_is_computed_again_and_counted(model):
    store, request = [], Request(prompt(1, 70), GREEDY, 12, stop_ids=())
    first, _ = served(model, store, request)
    third = sorted(store[0].blocks, key=lambda key: key.depth)[2]
    store[0].corrupt.add(third.digest)
    again, stats = served(model, store, request)
    assert first == again
    assert (stats.store.blocks.corrupt_blocks, stats.store.hit_tokens) == (1, 32)
    assert third in store[0].blocks, "it was stored again"
    assert served(model, store, request)[1].store.hit_tokens == 64


def test_pages_that_are_held_are_not_loaded(model):
    """The tree has the first pages of both; the store has more of the second."""
    store = []
    short, long = Request(prompt(1, 40), GREEDY, 1, stop_ids=()), Request(prompt(1, 100), GREEDY, 8, stop_ids=())
    served(model, store, long)
    engine = Engine(model, OPTIONS, open_store=lambda pool: store[0])
    store[0].blocks = {key: block for key, block in store[0].blocks.items() if key.depth > 1}
    engine.submit(short)
    run(engine)
    assert engine.stats().store.hits == 0
    id = engine.submit(long)
    assert tokens_of(run(engine))[id] == alone(model, long)
    engine.close()
    stats = engine.stats()
    assert (stats.prefix_hit_tokens, stats.store.hit_tokens) == (96, 96 - 40)  # 40: the short one's
    assert stats.store.loaded_bytes == 4 * store[0].block_bytes
    assert_no_page_is_lost(engine)


def test_others_go_on_while_pages_are_loaded(model):
    store, request = [], Request(prompt(1, 70), GREEDY, 4, stop_ids=())
    served(model, store, request)
    engine = Engine(model, OPTIONS, open_store=lambda pool: store[0])
    other = Request(prompt(2, 20), GREEDY, 6, stop_ids=())
    events = []
    with store[0].slow():
        ids = [engine.submit(other), engine.submit(request)]
        for _ in range(6):
            events += engine.step()
        assert tokens_of(events) == {ids[0]: alone(model, other)}, "it did not wait for the other's pages"
        assert engine.scheduler.is_loading
    events += run(engine)
    assert tokens_of(events)[ids[1]] == alone(model, request)
    engine.close()
    assert engine.stats().store.hits == 1
    assert_no_page_is_lost(engine)


@pytest.mark.parametrize("end", ["abort", "preempt"])
def test_a_request_that_stops_while_its_pages_are_loaded_leaves_nothing(model, end):
    store, request = [], Request(prompt(1, 70), GREEDY, 4, stop_ids=())
    served(model, store, request)
    engine = Engine(model, OPTIONS, open_store=lambda pool: store[0])
    with store[0].slow():
        id = engine.submit(request)
        engine.step()
        assert engine.scheduler.is_loading
        threading.Timer(0.05, store[0]._is_fast.set).start()  # whoever stops it waits for the block that is being read
        if end == "abort":
            engine.abort(id)
        else:
            engine.scheduler._preempt(engine.scheduler.running[0])
        assert not engine.scheduler.is_loading
    texts = tokens_of(run(engine))
    assert end == "abort" or texts[id] == alone(model, request)
    engine.close()
    assert_no_page_is_lost(engine)


def test_pages_that_find_no_room_in_the_queue_are_stored_later(model):
    store = []
    engine = Engine(model, OPTIONS, open_store=lambda pool: store.append(MemoryStore(pool.block_bytes)) or store[0])
    engine.stored.queue_bytes = 2 * store[0].block_bytes
    engine.submit(Request(prompt(1, 70), GREEDY, 40, stop_ids=()))
    with store[0].slow():
        engine.step()
        stats = engine.stats().store
        assert (stats.waiting_blocks, stats.skipped_blocks) == (2, 1)
    while engine.stored._waiting:
        time.sleep(0.01)
    run(engine)
    engine.close()
    assert {key.depth for key in store[0].blocks} > {0, 1, 2}


def test_a_hit_that_was_slower_than_computing_is_counted(model):
    store, request = [], Request(prompt(1, 70), GREEDY, 1, stop_ids=())
    served(model, store, request)
    engine = Engine(model, OPTIONS, open_store=lambda pool: store[0])
    engine.stored.rate.add(64, 64 * 1e-6)
    with store[0].slow():
        engine.submit(request)
        engine.step()
    run(engine)
    engine.close()
    stats = engine.stats().store
    assert (stats.hits, stats.slow_hits) == (1, 1)
    assert stats.load_s > 64e-6 and stats.saved_s < 0


def test_blocks_that_are_too_old_are_not_used(model):
    store, request = [], Request(prompt(1, 70), GREEDY, 1, stop_ids=())
    served(model, store, request)
    for key, (data, note) in store[0].blocks.items():
        if key.depth >= 2:
            store[0].blocks[key] = data, replace(note, computed_at=note.computed_at - 100)
    _, stats = served(model, store, request, replace(OPTIONS, prefix_max_age_s=50.0))
    assert stats.store.hit_tokens == 32
