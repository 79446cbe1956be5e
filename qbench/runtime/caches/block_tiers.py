"""`BlockTiers`: blocks of many layers in the pages of one storage, and on a disk if the pages do not suffice."""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from qbench.runtime.caches.kv_storage import KVStorage
from qbench.runtime.tiers.spill_file import SpillFile
from quant.errors import InputError

Block = tuple[int, int]  # layer, number of the block in the layer


class BlockTiers:
    """Pinned blocks stay in memory; of the others the least recently used one makes room.

    A thread of its own moves blocks, in the order in which they are asked for.

    storage      whose pages are the memory
    num_loaded   blocks that came from the disk
    num_waited   blocks among them that were not there yet when they were needed
    num_spilled  blocks that were written to the disk
    """

    def __init__(self, storage: KVStorage, spill: SpillFile) -> None:
        self.storage, self.spill = storage, spill
        self.num_loaded = self.num_waited = self.num_spilled = 0
        self._pages: OrderedDict[Block, int] = OrderedDict()  # least recently used first
        self._free = list(range(storage.num_pages))[::-1]
        self._pins: Counter[Block] = Counter()
        self._changed: set[Block] = set()  # since they were written to the disk
        self._slots: dict[Block, int] = {}  # on the disk
        self._moves: dict[Block, Future[None]] = {}  # that are on their way to memory
        self._mover = ThreadPoolExecutor(1, thread_name_prefix="kv-mover")
        self._data = np.empty(storage.page_bytes, dtype=np.uint8)

    def pin(self, blocks: Sequence[Block]) -> np.ndarray:
        """Pages of the blocks, [n] int32, which stay until `unpin`; a block that is nowhere gets a page.

        raises   InputError if more blocks are pinned than there are pages
        """
        for block in blocks:
            self._pins[block] += 1
        self.prefetch(blocks)
        for block in blocks:
            if block not in self._pages:
                self._bring(block)
        for block in blocks:
            if (move := self._moves.pop(block, None)) is not None:
                self.num_waited += not move.done()
                move.result()
            self._pages.move_to_end(block)
        return np.array([self._pages[block] for block in blocks], dtype=np.int32)

    def unpin(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self._pins[block] -= 1
            if self._pins[block] <= 0:
                del self._pins[block]

    def prefetch(self, blocks: Sequence[Block]) -> None:
        """Begin to load the blocks that are on the disk, as far as there are pages that are not pinned."""
        kept = set(blocks)
        for block in blocks:
            if block in self._pages:
                self._pages.move_to_end(block)
            elif block in self._slots:
                if not self._free and self._victim(kept) is None:
                    return
                self._bring(block, kept)

    def change(self, blocks: Sequence[Block]) -> None:
        """These pinned blocks are about to be written to."""
        self._changed.update(blocks)

    def forget(self) -> None:
        """Drop all blocks."""
        for move in self._moves.values():
            move.result()
        for block in self._slots.values():
            self.spill.release(block)
        self._free = list(range(self.storage.num_pages))[::-1]
        for held in (self._pages, self._pins, self._changed, self._slots, self._moves):
            held.clear()

    def _bring(self, block: Block, kept: set[Block] | None = None) -> None:
        spilling = None if self._free else self._spill(self._victim(kept or set()))
        page = self._pages[block] = self._free.pop()
        if block in self._slots:
            self.num_loaded += 1
            self._moves[block] = self._mover.submit(self._load, page, self._slots[block])
        elif spilling is not None:
            spilling.result()  # the page is written to next

    def _victim(self, kept: set[Block]) -> Block | None:
        return next((block for block in self._pages if not self._pins[block] and block not in kept), None)

    def _spill(self, block: Block | None) -> Future[None] | None:
        """Free the page of a block."""
        if block is None:
            raise InputError(f"all {self.storage.num_pages} blocks of the KV cache's memory are in use; raise --kv-ram")
        page, move = self._pages.pop(block), self._moves.pop(block, None)
        if move is not None:
            move.result()
        self._free.append(page)
        if block not in self._changed and block in self._slots:
            return None
        self._changed.discard(block)
        if block not in self._slots:
            slot = self.spill.allocate()
            if slot is None:
                raise InputError(
                    f"the {self.spill.num_slots} blocks of the KV cache's disk are in use; raise --kv-disk"
                )
            self._slots[block] = slot
        self.num_spilled += 1
        return self._mover.submit(self._store, page, self._slots[block])

    def _store(self, page: int, slot: int) -> None:
        self.storage.dump_page(page, self._data)
        self.spill.write(slot, self._data)

    def _load(self, page: int, slot: int) -> None:
        self.storage.fill_page(page, self.spill.read(slot))
