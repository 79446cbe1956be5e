"""`WindowPages`, and `SinkPages` of a pool: pages of just the size of a window and of the sinks before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from qbench.runtime.caches.places.pages import PagedSequence, PagePool
from qbench.runtime.caches.places.places import OwnPages, PoolPages
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.kv_storage import BLOCK_TOKENS, KVStorage, held_tokens
from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class _Mark:
    """Everything that was held at some lengths."""

    seq_lens: np.ndarray
    dropped: np.ndarray
    stored: list[object]


class WindowPages(OwnPages[KVStorage]):
    """Each sequence has one page: its sinks, then the tokens that later queries see.

    Tokens that no query sees again are dropped when a forward pass is done and BLOCK_TOKENS of them have come together,
    so that a decode step rarely moves any. The tokens behind them move up; their distances to each other stay.

    num_heads   KV heads
    window      tokens that a query sees, itself included
    num_sinks   tokens at the beginning that stay
    """

    def __init__(self, memories: Sequence[KVStorage], num_heads: int, window: int, num_sinks: int = 0) -> None:
        super().__init__(memories, np.iinfo(np.int64).max, is_tight=True)
        self.num_heads, self.window, self.num_sinks = num_heads, window, num_sinks
        self._dropped = np.zeros(self.batch, dtype=np.int64)
        self._peak_bytes = self.size_bytes
        self._mark: _Mark | None = None

    @property
    def dropped(self) -> np.ndarray:
        return self._dropped

    @property
    def peak_bytes(self) -> int:
        return self._peak_bytes

    def advance(self, seq_lens: np.ndarray) -> None:
        self._peak_bytes = max(self._peak_bytes, self.size_bytes)
        ends = seq_lens - self._dropped
        unseen = num_unseen(ends, self.window, self.num_sinks)
        if (unseen < BLOCK_TOKENS).all():
            return
        for b in np.flatnonzero(unseen >= BLOCK_TOKENS).tolist():
            self._drop(b, int(ends[b]), int(unseen[b]))
        size = held_tokens(window_slots(self.window, self.num_sinks))
        for memory in self.memories:
            if memory.page_size > size:
                memory.resize(size)

    def _drop(self, b: int, end: int, count: int) -> None:
        """The oldest `count` tokens behind the sinks of a sequence of `end` slots."""
        past = Past(self.block_table[b : b + 1], np.array([end]))
        drop_behind_sinks(self.memories, past, self.num_heads, self.num_sinks, count)
        self._dropped[b] += count

    def mark(self, seq_lens: np.ndarray) -> None:
        self._mark = _Mark(seq_lens.copy(), self._dropped.copy(), [memory.save() for memory in self.memories])

    def check_truncate(self, seq_lens: np.ndarray) -> None:
        if self._is_marked(seq_lens):
            return
        for seq_len, dropped in zip(seq_lens.tolist(), self._dropped.tolist(), strict=True):
            first_seen = max(0, seq_len + 1 - self.window)
            if dropped and seq_len > self.num_sinks and first_seen < self.num_sinks + dropped:
                raise InputError(
                    f"truncate to {seq_len}, whose window begins at token {first_seen}, but those before "
                    f"{self.num_sinks + dropped} are gone; go back to 0 or to a marked length"
                )

    def truncate(self, before: np.ndarray, seq_lens: np.ndarray) -> None:
        if self._is_marked(seq_lens):
            assert self._mark is not None
            for memory, stored in zip(self.memories, self._mark.stored, strict=True):
                memory.load(stored)
            self._dropped = self._mark.dropped.copy()
            return
        if self._mark is not None and (seq_lens < self._mark.seq_lens).any():
            self._mark = None  # other tokens may follow
        super().truncate(before, seq_lens)
        self._dropped[seq_lens <= self.num_sinks] = 0

    def _is_marked(self, seq_lens: np.ndarray) -> bool:
        return self._mark is not None and np.array_equal(self._mark.seq_lens, seq_lens)


class SinkSequence(PagedSequence):
    """A sequence of a pool that keeps its sinks and the tokens that later queries see; `SinkPages` drops the others.

    dropped  tokens that are gone
    """

    def __init__(self, pool: PagePool, window: int, num_sinks: int) -> None:
        super().__init__(pool)
        self.window, self.num_sinks, self.dropped = window, num_sinks, 0

    @property
    def num_slots(self) -> int:
        return self.seq_len - self.dropped

    @property
    def can_leave(self) -> bool:
        return not self.dropped

    def truncate(self, seq_len: int) -> None:
        if seq_len == 0:
            self.dropped = 0
        super().truncate(seq_len)


class SinkPages(PoolPages):
    """The same tokens in pages of a pool as in `WindowPages`, for memories whose groups of tokens lose single ones."""

    sequences: list[SinkSequence]

    @property
    def dropped(self) -> np.ndarray:
        return np.array([sequence.dropped for sequence in self.sequences], dtype=np.int64)

    def advance(self, seq_lens: np.ndarray) -> None:
        super().advance(seq_lens)
        num_heads = self.pool.config.num_kv_heads
        for b, sequence in enumerate(self.sequences):
            count = int(num_unseen(sequence.num_slots, sequence.window, sequence.num_sinks))
            if count >= BLOCK_TOKENS:
                past = Past(self.block_table[b : b + 1], np.array([sequence.num_slots]))
                drop_behind_sinks(self.memories, past, num_heads, sequence.num_sinks, count)
                sequence.dropped += count
                sequence.trim()


Slots = TypeVar("Slots", int, np.ndarray)


def num_unseen(num_slots: Slots, window: int, num_sinks: int) -> Slots:
    """Tokens in so many slots that neither the next query sees nor those after it."""
    return num_slots - (num_sinks + window - 1)


def drop_behind_sinks(memories: Sequence[KVStorage], past: Past, num_heads: int, num_sinks: int, count: int) -> None:
    """Forget the oldest `count` tokens behind the sinks of the only sequence of `past`."""
    kept = torch.cat([torch.arange(num_sinks), torch.arange(num_sinks + count, past.num_slots)])
    for memory in memories:
        memory.compact(past, kept.expand(1, num_heads, -1))


def window_slots(window: int, num_sinks: int = 0) -> int:
    """Slots that a long text takes while it grows token by token."""
    return num_sinks + window + BLOCK_TOKENS - 1


def sink_slots(num_prompt: int, steps: int, chunk: int, window: int, num_sinks: int) -> int:
    """Slots in use after a prompt in chunks and `steps` tokens that came one at a time."""
    seen_later = num_sinks + window - 1
    slots = 0
    for new in [*[chunk] * (num_prompt // chunk), num_prompt % chunk]:
        slots += new
        slots = seen_later if slots - seen_later >= BLOCK_TOKENS else slots
    return slots + steps if slots + steps < seen_later else seen_later + (slots + steps - seen_later) % BLOCK_TOKENS
