"""A `BlockStore` in memory, for tests of engines without a disk."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

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
