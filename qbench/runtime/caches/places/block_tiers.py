"""`BlockTiers`: blocks of many layers in the pages of one storage, and on a disk if the pages do not suffice."""

import importlib
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from qbench.runtime.caches.step import EVICTED
from qbench.runtime.caches.step_reads import TierTally
from qbench.runtime.caches.storage.kernel_storage import KernelStorage
from qbench.runtime.caches.storage.kv_storage import KVStorage
from qbench.runtime.tiers.read_ahead import MOST_BYTES, MOST_SLOTS, ReadAhead
from qbench.runtime.tiers.spill_file import SpillFile
from quant.errors import InputError

NO_BLOCKS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Moves:
    """Blocks that go to the disk from their pages, and then blocks that come from there to theirs."""

    spilled: np.ndarray
    spilled_pages: np.ndarray
    loaded: np.ndarray
    pages: np.ndarray


class BlockTiers:
    """Pinned blocks stay in memory; of the others the one with the lowest rank makes room.

    A thread of its own moves blocks, in the order in which they are asked for. Block n of layer l has the place
    l * num_blocks + n on the disk, so that neighbours are read at once.

    storage      whose pages are the memory
    table        [layers, num_blocks] int32: page of each block, EVICTED if it is not in memory
    rank         [layers, num_blocks] float64: number of its last use, or a number that the owner sets
    ranks_uses   whether a use sets the rank: least recently used blocks make room
    tally        counts of the blocks that were needed, and of those that came from the disk
    num_waited   blocks from the disk that were not there yet when they were needed
    num_spilled  blocks that were written to the disk
    in_kernels   cpu_kernels.ChosenBlocks over the same arrays, which brings blocks without Python, or None
    """

    def __init__(
        self, storage: KVStorage, num_layers: int, num_blocks: int, spill: SpillFile, *, ranks_uses: bool = True
    ) -> None:
        self.storage, self.spill, self.num_blocks, self.ranks_uses = storage, spill, num_blocks, ranks_uses
        self.num_waited = self.num_spilled = 0
        self.tally = TierTally(storage.page_bytes)
        shape = (num_layers, num_blocks)
        self.table = np.full(shape, EVICTED, dtype=np.int32)
        self.rank = np.zeros(shape)
        # The same by the number of a block in all layers.
        self._page, self._rank = self.table.reshape(-1), self.rank.reshape(-1)
        self._pins = np.zeros(self._page.size, dtype=np.int32)
        self._changed = np.zeros(self._page.size, dtype=bool)  # since they were written to the disk
        self._on_disk = np.zeros(self._page.size, dtype=bool)
        self._job = np.zeros(self._page.size, dtype=np.int64)  # number of the last one that moved the block
        self._owner = np.full(storage.num_pages, -1)  # block of each page
        self._num_jobs, self._clock = 0, 0
        self._ahead: ReadAhead | None = None
        self.in_kernels: Any = None
        self._jobs: deque[tuple[int, int, Future[None]]] = deque()  # number, blocks that it loads
        self._mover = ThreadPoolExecutor(1, thread_name_prefix="kv-mover")

    def choose_in_kernels(self, has_decayed: np.ndarray, log_decay: float) -> None:
        """Have `in_kernels`, if the storage and the system can.

        has_decayed  [layers] bool: whether the owner has let the ranks of a layer decay since its last credit
        log_decay    which it adds to them
        """
        spill = self.spill
        if not isinstance(self.storage, KernelStorage) or not spill.reads_many:
            return
        own = (self._rank, self._pins, self._changed, self._on_disk, self._job, self._owner)
        num_slots = min(MOST_SLOTS, MOST_BYTES // spill.stride), min(MOST_SLOTS, spill.run_slots)
        make = importlib.import_module("cpu_kernels").ChosenBlocks
        arrays = (self.table, *own, has_decayed)
        self.in_kernels = make(self.storage.store, arrays, log_decay, spill.descriptor, spill.stride, *num_slots)

    def count_in_kernels(self) -> None:
        """Add the reads of `in_kernels` to the tally."""
        loaded, _, unused = self.in_kernels.take_counts()
        self.tally.num_loaded += loaded
        self.tally.num_unused += unused

    def first_job(self) -> int:
        """Number of the first one that has not ended"""
        while self._jobs and self._jobs[0][2].done():
            self._wait(self._jobs[0][0])
        return self._jobs[0][0] if self._jobs else self._num_jobs + 1

    def pin(self, layer: int, blocks: np.ndarray) -> np.ndarray:
        """Pages of a layer's blocks [n], which stay until `unpin`: [n] int32. A block that is nowhere gets a page.

        raises   InputError if more blocks are pinned than there are pages
        """
        ids = layer * self.num_blocks + blocks
        self._pins[ids] += 1
        self.tally.num_asked += len(ids)
        self._begin(ids)
        self._wait(int(self._job[ids].max(initial=0)))
        return self._page[ids]

    def unpin(self, layer: int, blocks: np.ndarray) -> None:
        self._pins[layer * self.num_blocks + blocks] -= 1

    def prefetch(self, layer: int, blocks: np.ndarray) -> None:
        """Begin to load the blocks that are on the disk, as far as there are pages that are not pinned."""
        ids = layer * self.num_blocks + blocks
        ids = ids[(self._page[ids] != EVICTED) | self._on_disk[ids]]
        away = self._page[ids] == EVICTED
        ids = ids[~away | (away.cumsum() <= self._num_free(ids))]
        self._begin(ids)

    def bring(self, layer: int, blocks: np.ndarray) -> None:
        """Have these blocks in memory, until others are asked for; the owner counts them in the tally.

        raises   InputError if there are fewer pages that are not pinned
        """
        if self.in_kernels is not None:
            self.in_kernels.first_job = self.first_job()
            is_there = self.in_kernels.bring(layer, blocks)
            self.count_in_kernels()
            if is_there:
                return
        ids = layer * self.num_blocks + blocks
        away = ids[self._page[ids] == EVICTED]
        if len(away):
            self._wait(self._num_jobs)
            moves = self._plan(away, ids)  # in this thread, which would wait for the other one
            self._write(moves)
            self._load(*self._fill_expected(moves.loaded, moves.pages))

    def expect(self, ids: np.ndarray) -> None:
        """Begin to read blocks that `bring` may be asked for next; only it uses them. Earlier guesses are forgotten.

        ids   layer * num_blocks + block, in the order in which they will be asked for; those in memory are ignored
        """
        if self._ahead is None:
            self._ahead = self.spill.read_ahead()
        unused = self._ahead.num_unused
        first = self.first_job()
        on_disk = self._on_disk[ids] & (self._page[ids] == EVICTED) & (self._job[ids] < first)
        self._ahead.begin(ids[on_disk].tolist())
        self.tally.num_unused += self._ahead.num_unused - unused

    def _fill_expected(self, slots: np.ndarray, pages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fill the pages of blocks that were expected; slots and pages of the others."""
        if self._ahead is None:
            return slots, pages
        begun, data = self._ahead.take(slots.tolist())
        if len(data):
            there = np.array(begun)
            self.storage.fill_pages(pages[there], data)
            slots, pages = slots[~there], pages[~there]
        return slots, pages

    def _forget_expected(self, slots: np.ndarray | None) -> None:
        """The file's bytes of these slots change; None: of all."""
        if self._ahead is not None:
            self._ahead.forget(None if slots is None else slots.tolist())
        if self.in_kernels is not None:
            self.in_kernels.forget(slots)

    def change(self, layer: int, blocks: np.ndarray) -> None:
        """These pinned blocks are about to be written to."""
        self._changed[layer * self.num_blocks + blocks] = True

    def store(self, layers: Sequence[int], blocks: np.ndarray) -> None:
        """Begin to write these blocks in memory of each layer to the disk, so that they can make room at once later."""
        ids = (np.array(layers)[:, None] * self.num_blocks + blocks).ravel()
        self._submit(self._moves(ids, self._page[ids], NO_BLOCKS))

    def forget(self, first: int = 0) -> None:
        """Drop the blocks of all layers from block `first` on, pinned ones among them."""
        self._wait(self._num_jobs)
        self._forget_expected(None)
        ids = np.arange(self._page.size).reshape(self.table.shape)[:, first:].ravel()
        self._owner[np.isin(self._owner, ids)] = -1
        self._page[ids] = EVICTED
        for held in (self._pins, self._changed, self._on_disk, self._rank):
            held[ids] = 0

    def _begin(self, ids: np.ndarray) -> None:
        """Begin to bring these blocks."""
        if self.ranks_uses:
            self._clock += 1
            self._rank[ids] = self._clock
        away = ids[self._page[ids] == EVICTED]
        if not len(away):
            return
        moves = self._plan(away, ids)
        if len(moves.spilled) or len(moves.loaded):
            self._submit(moves)
        if len(moves.loaded) < len(away):
            self._wait(self._num_jobs)  # pages are written to next

    def _plan(self, away: np.ndarray, kept: np.ndarray) -> "Moves":
        """Give pages to the blocks `away`; the blocks `kept` keep theirs."""
        pages, spilled, spilled_pages = self._make_room(len(away), kept)
        self._page[away], self._owner[pages] = pages, away
        stored = self._on_disk[away]
        return self._moves(spilled, spilled_pages, away[stored])

    def _moves(self, spilled: np.ndarray, spilled_pages: np.ndarray, loaded: np.ndarray) -> "Moves":
        if len(spilled) and spilled.max() >= self.spill.num_slots:
            raise InputError(f"the KV cache's disk has room for {self.spill.num_slots} blocks; raise --kv-disk")
        if len(spilled):
            self._changed[spilled], self._on_disk[spilled] = False, True
            self.num_spilled += len(spilled)
            self._forget_expected(spilled)
        self.tally.num_loaded += len(loaded)
        return Moves(spilled, spilled_pages, loaded, self._page[loaded])

    def _make_room(self, count: int, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pages for `count` blocks; blocks that have to be written to the disk before, and their pages."""
        free = (self._owner < 0).nonzero()[0][:count]
        if len(free) == count:
            return free, NO_BLOCKS, NO_BLOCKS
        pages = self._victims(kept)
        if len(free) + len(pages) < count:
            raise InputError(f"all {self.storage.num_pages} blocks of the KV cache's memory are in use; raise --kv-ram")
        order = self._rank[self._owner[pages]].argsort(kind="stable")[: count - len(free)]
        pages = pages[order]
        victims = self._owner[pages]
        self._page[victims] = EVICTED
        must = self._changed[victims] | ~self._on_disk[victims]
        return np.concatenate((free, pages)), victims[must], pages[must]

    def _victims(self, kept: np.ndarray) -> np.ndarray:
        """Pages of blocks that may make room: of those in memory all that are neither pinned nor kept"""
        can = self._pins[self._owner] == 0
        can[self._owner < 0] = False
        there = self._page[kept]
        can[there[there >= 0]] = False
        return can.nonzero()[0]

    def _num_free(self, kept: np.ndarray) -> int:
        return int((self._owner < 0).sum()) + len(self._victims(kept))

    def _submit(self, moves: "Moves") -> None:
        self._num_jobs += 1
        self._job[moves.spilled] = self._job[moves.loaded] = self._num_jobs
        self._jobs.append((self._num_jobs, len(moves.loaded), self._mover.submit(self._move, moves)))

    def _wait(self, number: int) -> None:
        """For all jobs up to this one."""
        while self._jobs and self._jobs[0][0] <= number:
            _, num_blocks, job = self._jobs.popleft()
            self.num_waited += 0 if job.done() else num_blocks
            job.result()

    def _move(self, moves: "Moves") -> None:
        self._write(moves)
        self._load(moves.loaded, moves.pages)

    def _write(self, moves: "Moves") -> None:
        if len(moves.spilled):
            for first, which in self._runs(moves.spilled, moves.spilled_pages):
                self.storage.dump_pages(which, self.spill.buffer(len(which)))
                self.spill.write_run(first, len(which))

    def _load(self, slots: np.ndarray, pages: np.ndarray) -> None:
        """Slots to these pages; as many at once as the file's buffer holds"""
        if len(slots) > 1:
            order = slots.argsort()
            slots, pages = slots[order], pages[order]
        most = self.spill.run_slots
        for first in range(0, len(slots), most):
            some = slice(first, first + most)
            self.storage.fill_pages(pages[some], self.spill.read_slots(slots[some].tolist()))

    def _runs(self, slots: np.ndarray, pages: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """First slot and pages of each run of neighbours, no longer than the file's buffer"""
        runs: list[tuple[int, list[int]]] = []
        for slot, page in sorted(zip(slots.tolist(), pages.tolist(), strict=True)):
            first, its = runs[-1] if runs else (-1, [])
            if slot == first + len(its) and its and len(its) < self.spill.run_slots:
                its.append(page)
            else:
                runs.append((slot, [page]))
        return [(first, np.array(its, dtype=np.int32)) for first, its in runs]
