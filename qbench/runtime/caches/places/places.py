"""`Places`: the pages in which the sequences of a cache keep their tokens, in some of its layers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from qbench.runtime.caches.places.pages import PagedSequence, PagePool
from qbench.runtime.caches.sequences import check_seq_len
from qbench.runtime.caches.step import EVICTED
from qbench.runtime.caches.step_reads import StepReads, TierTally
from qbench.runtime.caches.storage.kv_storage import PageMemory, held_tokens
from quant.errors import InputError

Memory = TypeVar("Memory", bound=PageMemory)


class Places(ABC, Generic[Memory]):
    """Who holds which pages.

    layers       of the model
    memories     one per layer, with the same pages
    batch        sequences
    block_table  [B, pages] int32 in a forward pass: pages of each sequence, in order
    tally        counts of blocks that decode steps read from a disk; None: all pages are in memory
    is_tight     whether layers have room for their own tokens only
    at_once      whether all layers are in memory at once, in pages of one block table; False: `reserve` brings a layer
    """

    is_tight: bool = False
    at_once: bool = True
    tally: TierTally | None = None

    layers: Sequence[int]
    memories: Sequence[Memory]
    batch: int
    block_table: np.ndarray

    @property
    def page_size(self) -> int:
        return self.memories[0].page_size

    @property
    def bytes_per_token(self) -> float:
        return sum(memory.bytes_per_token for memory in self.memories)

    def table_of(self, layer: int) -> np.ndarray:
        """The block table of a layer"""
        return self.block_table

    @property
    def tables(self) -> np.ndarray | list[np.ndarray]:
        """The block table of all layers, or one per layer"""
        return self.block_table

    @property
    def num_slots(self) -> int:
        """Slots per sequence that every layer has room for"""
        return self.page_size * self.block_table.shape[1]

    def hold(self, layer: int, first: int, last: int) -> None:
        """Pages `first` to `last` - 1 of each sequence stay in memory and may change there."""

    def release(self, layers: Sequence[int], first: int, last: int) -> None:
        """Pages `first` to `last` - 1 of each sequence in these layers do not change any more, and may leave."""

    def bring(self, layer: int, pages: np.ndarray) -> None:
        """Have these pages [n] of each sequence in memory until others are brought."""

    def begin_step(self) -> Any:
        """cpu_kernels.ChosenBlocks that brings pages in a step of all layers; None: `bring` alone does"""
        return None

    def follow(self, reads: StepReads) -> None:
        """A step has read blocks of all layers; get ready for the next one."""

    def credit(self, layer: int, pages: np.ndarray, received: np.ndarray) -> None:
        """Note the attention that chosen pages [n] of a layer received: [n]"""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Memory that these sequences hold."""

    @property
    def peak_bytes(self) -> int | None:
        """Most memory that they held; None if they never hold more than in the end"""
        return None

    @property
    def dropped(self) -> np.ndarray | None:
        """[B] int64: tokens that have left the pages, so that later ones moved up; None: all stay"""
        return None

    @abstractmethod
    def begin(self, counts: Sequence[int]) -> None:
        """A forward pass that brings so many tokens to each sequence.

        raises   OutOfPages
        """

    @abstractmethod
    def reserve(self, layer: int, num_slots: int) -> None:
        """Room for so many slots per sequence in a layer."""

    def trim(self, layer: int, num_slots: int) -> None:
        """The sequences use no more than so many slots of a layer."""

    def advance(self, seq_lens: np.ndarray) -> None:
        """The forward pass is done; sequences now have seq_lens [B] tokens."""

    def mark(self, seq_lens: np.ndarray) -> None:
        """Remember everything, so that the sequences can go back to the seq_lens [B] tokens that they have now."""

    def check_truncate(self, seq_lens: np.ndarray) -> None:
        """raises InputError for lengths that the sequences cannot go back to"""

    def truncate(self, before: np.ndarray, seq_lens: np.ndarray) -> None:
        """Go back from `before` [B] tokens to seq_lens [B]."""


class OwnPages(Places[Memory]):
    """Each sequence has one page, which grows up to `most` slots.

    is_tight   whether pages grow no further than they must, and shrink when slots are free; False: sizes double, so
               that a token is copied once on average
    """

    def __init__(self, memories: Sequence[Memory], most: int, *, is_tight: bool = False) -> None:
        self.memories, self.most, self.is_tight = list(memories), most, is_tight
        self.layers = range(len(memories))
        self.batch = memories[0].num_pages
        self.block_table = np.arange(self.batch, dtype=np.int32)[:, None]

    @property
    def size_bytes(self) -> int:
        return sum(memory.size_bytes for memory in self.memories)

    def begin(self, counts: Sequence[int]) -> None:
        """`reserve` makes room, so that layers grow one after the other."""

    def reserve(self, layer: int, num_slots: int) -> None:
        memory = self.memories[layer]
        if num_slots > memory.page_size:
            check_seq_len(num_slots, self.most)
            memory.resize(
                held_tokens(num_slots) if self.is_tight else min(max(num_slots, 2 * memory.page_size), self.most)
            )

    def mark(self, seq_lens: np.ndarray) -> None:
        for memory in self.memories:
            memory.mark()

    def check_truncate(self, seq_lens: np.ndarray) -> None:
        for memory in self.memories:
            memory.check_truncate(self.block_table, seq_lens)

    def truncate(self, before: np.ndarray, seq_lens: np.ndarray) -> None:
        for memory in self.memories:
            memory.truncate(self.block_table, before, seq_lens)

    def trim(self, layer: int, num_slots: int) -> None:
        if self.is_tight and self.memories[layer].page_size > held_tokens(num_slots):
            self.memories[layer].resize(held_tokens(num_slots))


class PoolPages(Places[Any]):
    """Sequences take their pages from a pool.

    sequences   one per sequence of the batch
    layers      of the model that keep their tokens in the pool's layers; None: the pool's own
    """

    def __init__(self, pool: PagePool, sequences: Sequence[PagedSequence], layers: Sequence[int] | None = None) -> None:
        self.pool, self.sequences = pool, list(sequences)
        self.layers = pool.layers if layers is None else layers
        self.memories, self.batch = pool.memories, len(sequences)

    @property
    def seq_lens(self) -> np.ndarray:
        """[B] int64: tokens that each sequence has seen"""
        return np.array([sequence.seq_len for sequence in self.sequences], dtype=np.int64)

    @property
    def size_bytes(self) -> int:
        """Pages that several sequences share count once."""
        return len({page for sequence in self.sequences for page in sequence.pages} - {EVICTED}) * self.pool.page_bytes

    def begin(self, counts: Sequence[int]) -> None:
        for sequence, count in zip(self.sequences, counts, strict=True):
            sequence.reserve(count)
        first = 1 if self.pool.num_rings else 0
        most = first + max([1, *(len(sequence.pages) for sequence in self.sequences)])
        self.block_table = np.full((self.batch, most), EVICTED, dtype=np.int32)
        for row, sequence in zip(self.block_table, self.sequences, strict=True):
            row[first : first + len(sequence.pages)] = sequence.pages
            if sequence.ring is not None:
                row[0] = sequence.ring

    def reserve(self, layer: int, num_slots: int) -> None:
        """`begin` has taken the pages."""

    def advance(self, seq_lens: np.ndarray) -> None:
        for sequence, seq_len in zip(self.sequences, seq_lens.tolist(), strict=True):
            sequence.seq_len = seq_len
            if sequence.frees_pages:
                sequence.trim()

    @property
    def peak_bytes(self) -> int | None:
        peaks = [sequence.peak_pages for sequence in self.sequences if sequence.peak_pages is not None]
        return sum(peaks) * self.pool.page_bytes if peaks else None

    def mark(self, seq_lens: np.ndarray) -> None:
        for sequence in self.sequences:
            sequence.mark()

    def check_truncate(self, seq_lens: np.ndarray) -> None:
        for sequence, seq_len in zip(self.sequences, seq_lens.tolist(), strict=True):
            sequence.check_truncate(seq_len)

    def truncate(self, before: np.ndarray, seq_lens: np.ndarray) -> None:
        for sequence, seq_len in zip(self.sequences, seq_lens.tolist(), strict=True):
            sequence.truncate(seq_len)


def check_sizes(batch: int, capacity: int) -> None:
    """raises InputError for a cache of no sequence or no token"""
    if batch < 1 or capacity < 1:
        raise InputError(f"cache of batch {batch} and capacity {capacity}, expected at least 1 of each")
