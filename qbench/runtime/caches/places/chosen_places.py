"""`ChosenPlaces`: one sequence whose distant blocks are on a disk, and in memory if they were chosen lately."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, log
from typing import Any

import numpy as np

from qbench.policies.infllm import InfLLM
from qbench.runtime.caches.places.block_tiers import BlockTiers
from qbench.runtime.caches.places.places import Places
from qbench.runtime.caches.places.tiered_places import TIER_TOKENS
from qbench.runtime.caches.step_reads import StepReads
from qbench.runtime.caches.storage.kv_storage import KVStorage
from qbench.runtime.tiers.aligned import padded
from qbench.runtime.tiers.spill_file import SpillFile
from quant.errors import InputError

DECAY = 0.1  # per choice of the layer, as in the authors' settings
LOG_DECAY = log(DECAY)
LEAST_MASS = 1e-30  # has a logarithm


class ChosenPlaces(Places[KVStorage]):
    """The first tokens and the last ones are in memory. Distant blocks are there if there is room for them.

    A distant block does not change any more. It is written to the disk at once, and makes room without a write. The
    block that received the least attention makes room first: attention of t steps ago counts DECAY ** t.

    storage  whose pages all layers share
    tiers    over the same storage
    source   Xiao et al. 2024, arXiv:2402.04617, section 3.2, and the authors' code: LRU with a decayed score
    """

    def __init__(self, storage: KVStorage, num_layers: int, tiers: BlockTiers) -> None:
        self.memories, self.layers, self.batch, self.tiers = [storage] * num_layers, range(num_layers), 1, tiers
        self.tally = tiers.tally
        self._tables = [tiers.table[layer : layer + 1] for layer in range(num_layers)]
        self.block_table = self._tables[0]
        self._has_decayed = np.zeros(num_layers, dtype=bool)  # since the last credit
        tiers.choose_in_kernels(self._has_decayed, LOG_DECAY)
        self._rows = np.arange(num_layers)[:, None]
        self._num_reserved = [0] * num_layers  # pages up to the last one that `reserve` was asked for

    @property
    def size_bytes(self) -> int:
        return self.memories[0].size_bytes

    @property
    def tables(self) -> list[np.ndarray]:
        return self._tables

    def table_of(self, layer: int) -> np.ndarray:
        return self._tables[layer]

    @property
    def num_slots(self) -> int:
        return min(self._num_reserved) * self.page_size

    def begin(self, counts: Sequence[int]) -> None:
        """`reserve` makes room, layer by layer."""

    def reserve(self, layer: int, num_slots: int) -> None:
        first, last = self._num_reserved[layer], -(-num_slots // self.page_size)
        if last > first:
            self.hold(layer, first, last)
            self._num_reserved[layer] = last
        self.block_table = self._tables[layer]

    def hold(self, layer: int, first: int, last: int) -> None:
        blocks = np.arange(first, last)
        self.tiers.pin(layer, blocks)
        self.tiers.change(layer, blocks)

    def release(self, layers: Sequence[int], first: int, last: int) -> None:
        blocks = np.arange(first, last)
        self.tiers.store(layers, blocks)
        for layer in layers:
            self.tiers.unpin(layer, blocks)

    def bring(self, layer: int, pages: np.ndarray) -> None:
        self._decay(layer)  # so that blocks that were not chosen again make room for these
        self.tiers.bring(layer, pages)

    def begin_step(self) -> Any:
        if self.tiers.in_kernels is not None:
            self.tiers.in_kernels.first_job = self.tiers.first_job()
        return self.tiers.in_kernels

    def follow(self, reads: StepReads) -> None:
        sizes, tiers = reads.sizes, self.tiers
        if tiers.in_kernels is not None:
            tiers.in_kernels.first_job = tiers.first_job()
            its = (reads.chosen, reads.mass, sizes.init_pages, sizes.block_pages)
            tiers.in_kernels.follow(*its, reads.smoothing, reads.num_more)
            tiers.count_in_kernels()
            tiers.tally.num_asked += reads.chosen.size * sizes.block_pages
            return
        for layer, (pages, received) in enumerate(zip(reads.pages, reads.received, strict=True)):
            self.credit(layer, pages, received)
        tiers.expect((self._rows * tiers.num_blocks + reads.likely_pages).ravel())

    def credit(self, layer: int, pages: np.ndarray, received: np.ndarray) -> None:
        self._decay(layer)
        self._has_decayed[layer] = False
        self.tiers.tally.num_asked += pages.size
        rank = self.tiers.rank[layer]  # logarithms of the sums
        rank[pages] = np.logaddexp(rank[pages], np.log(np.maximum(received, LEAST_MASS)))

    def _decay(self, layer: int) -> None:
        """Once from one credit to the next"""
        if not self._has_decayed[layer]:
            self.tiers.rank[layer] += LOG_DECAY
            self._has_decayed[layer] = True

    def advance(self, seq_lens: np.ndarray) -> None:
        self.tiers.tally.advance(int(seq_lens[0]))

    def truncate(self, before: np.ndarray, seq_lens: np.ndarray) -> None:
        """Later tokens overwrite the last page."""
        kept = -(-int(seq_lens[0]) // self.page_size)
        if kept < max(self._num_reserved):
            self.tiers.forget(kept)
            self._num_reserved = [min(kept, reserved) for reserved in self._num_reserved]
        self.tiers.tally.truncate(int(seq_lens[0]))


def page_size_of(policy: InfLLM) -> int:
    """Tokens of a page: first tokens and blocks are whole pages."""
    return gcd(policy.init, policy.block, TIER_TOKENS)


@dataclass(frozen=True, slots=True)
class ChosenSizes:
    """Sizes that decide the memory of a cache of retrieved blocks.

    capacity    tokens of the sequence, at most
    chunk       tokens of a forward pass, at most
    page_bytes  of one layer
    """

    policy: InfLLM
    num_layers: int
    capacity: int
    chunk: int
    page_bytes: int

    def num_pages(self, ram_bytes: int, disk_bytes: int) -> int:
        """Pages that the memory holds, no more than the sequence takes.

        raises   InputError for limits that are too small, with the smallest that suffice
        """
        whole = self.num_layers * self._pages(self.capacity)
        least = self._least_pages() * self.page_bytes
        if ram_bytes < least:
            raise InputError(
                f"{ram_bytes} bytes of memory, but the first and last tokens of all layers, a chunk of the prompt and "
                f"the blocks of a query take {least}; give --kv-ram at least that, or make local or budget smaller"
            )
        most = whole * padded(self.page_bytes)
        if most > disk_bytes:
            raise InputError(f"{disk_bytes} bytes of disk, but {self.capacity} tokens take more; give at least {most}")
        return min(ram_bytes // self.page_bytes, whole)

    def _least_pages(self) -> int:
        policy = self.policy
        near = self._pages(policy.init + policy.local + policy.block) + 1  # the last page is full in part
        chosen = max(1, policy.num_blocks(self.capacity)) * policy.block
        one = near + self._pages(self.chunk) + self._pages(chosen)
        whole = self._pages(self.capacity)
        return min(one, whole) + (self.num_layers - 1) * min(near, whole)

    def _pages(self, num_tokens: int) -> int:
        return -(-num_tokens // page_size_of(self.policy))


def chosen_places(storage: KVStorage, num_layers: int, capacity: int, disk_bytes: int) -> ChosenPlaces:
    """capacity: tokens of the sequence, at most"""
    num_blocks = -(-capacity // storage.page_size)
    spill = SpillFile(None, storage.page_bytes, disk_bytes)
    return ChosenPlaces(storage, num_layers, BlockTiers(storage, num_layers, num_blocks, spill, ranks_uses=False))
