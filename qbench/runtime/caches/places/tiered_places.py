"""`TieredPlaces`: one sequence whose blocks do not fit into memory, layer by layer."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from qbench.runtime.caches.places.block_tiers import BlockTiers
from qbench.runtime.caches.places.places import Places
from qbench.runtime.caches.storage.kv_storage import KVStorage
from qbench.runtime.tiers.aligned import padded
from qbench.runtime.tiers.spill_file import SpillFile
from quant.errors import InputError

# A KV head of 64 channels in float16 takes 16 KiB of 64 tokens: a layer's block is large enough for the disk's full
# bandwidth, and small enough that little memory stays empty at the end of a text.
TIER_TOKENS = 64
DISK_BYTES = 10 << 30


class TieredPlaces(Places[KVStorage]):
    """While a layer attends, the blocks of the next one that is not in memory are loaded.

    Every forward pass reads all layers in the same order, so the least recently used block would be the next one to
    be read. The first layers are pinned instead, as many as leave room for two more, and the others take turns.

    storage  whose pages all layers share
    tiers    over the same storage
    """

    at_once = False

    def __init__(self, storage: KVStorage, num_layers: int, tiers: BlockTiers) -> None:
        self.memories, self.layers, self.batch, self.tiers = [storage] * num_layers, range(num_layers), 1, tiers
        self.block_table = np.zeros((1, 1), dtype=np.int32)
        self.tally = tiers.tally
        self._pinned: dict[int, np.ndarray] = {}
        self._num_held = 0

    @property
    def size_bytes(self) -> int:
        return self.memories[0].size_bytes

    def begin(self, counts: Sequence[int]) -> None:
        """`reserve` makes room, layer by layer."""

    def reserve(self, layer: int, num_slots: int) -> None:
        size = self.page_size
        num_blocks = -(-num_slots // size)
        num_stay = self._num_staying(num_blocks)
        for other in [each for each in self._pinned if each >= num_stay or each == layer]:
            self.tiers.unpin(other, self._pinned.pop(other))
        blocks = np.arange(num_blocks)
        pages = self.tiers.pin(layer, blocks)
        self._pinned[layer] = blocks
        self.tiers.change(layer, blocks[self._num_held // size :])
        self.block_table = pages[None]
        if num_stay < len(self.layers):
            self.tiers.prefetch(layer + 1 if num_stay <= layer + 1 < len(self.layers) else num_stay, blocks)

    def advance(self, seq_lens: np.ndarray) -> None:
        self._num_held = int(seq_lens[0])
        self.tiers.tally.advance(self._num_held)

    def truncate(self, before: np.ndarray, seq_lens: np.ndarray) -> None:
        """Later tokens overwrite the blocks."""
        self._num_held = int(seq_lens[0])
        self.tiers.tally.truncate(self._num_held)
        if self._num_held == 0:
            self._pinned.clear()
            self.tiers.forget()

    def _num_staying(self, num_blocks: int) -> int:
        """Layers that stay in memory."""
        num_pages = self.memories[0].num_pages
        if num_pages >= num_blocks * len(self.layers):
            return len(self.layers)
        return max(0, num_pages // num_blocks - 2)


def num_tier_pages(page_bytes: int, num_layers: int, capacity: int, ram_bytes: int, disk_bytes: int) -> int:
    """Pages of TIER_TOKENS that the memory holds, no more than `capacity` tokens in all layers take.

    raises   InputError for limits that are too small for `capacity` tokens, with the smallest that suffice
    """
    needed = -(-capacity // TIER_TOKENS)
    num_pages = min(ram_bytes // page_bytes, needed * num_layers)
    if num_pages < needed:
        raise InputError(
            f"{ram_bytes} bytes of memory, but one layer of {capacity} tokens takes {needed * page_bytes}; give at "
            f"least {needed * page_bytes}"
        )
    spilled = (needed * num_layers - num_pages) * padded(page_bytes)
    most = needed * num_layers * padded(page_bytes) if spilled else 0
    if most > disk_bytes:
        raise InputError(
            f"{disk_bytes} bytes of disk, but {capacity} tokens in {num_layers} layers take more; give at least {most}"
        )
    return num_pages


def tiered_places(
    storage: KVStorage, num_layers: int, capacity: int, disk_bytes: int, folder: Path | None = None
) -> TieredPlaces:
    """capacity: tokens of the sequence, at most"""
    num_blocks = -(-capacity // storage.page_size)
    tiers = BlockTiers(storage, num_layers, num_blocks, SpillFile(folder, storage.page_bytes, disk_bytes))
    return TieredPlaces(storage, num_layers, tiers)
