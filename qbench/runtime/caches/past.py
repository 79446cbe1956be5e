"""`Past`: the slots of the sequences of a forward pass in the pages of a storage."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

EVICTED = -1  # in a block table: a page that its sequence has freed


@dataclass(frozen=True, slots=True)
class ChosenPages:
    """Pages that N queries read, each by itself and in each KV head.

    pages  [N, G, n] int32, in text order; those behind the last one that a query reads are any
    ends   [N] int64: slots in them that it reads
    """

    pages: np.ndarray
    ends: np.ndarray


@dataclass(frozen=True, slots=True)
class Past:
    """Slots of B sequences, those of the new tokens among them.

    block_table  [B, pages] int32: pages of each sequence, in order; EVICTED if no query sees a page any more
    ends         [B] int64: slots in use
    cu_seqlens   [B + 1] int64: new tokens of a varlen batch, as `Step.cu_seqlens`; None: all sequences have as many new
                 tokens and as many slots
    """

    block_table: np.ndarray
    ends: np.ndarray
    cu_seqlens: np.ndarray | None = None

    @property
    def num_slots(self) -> int:
        """Slots in use of every sequence of a batch that is not varlen."""
        return int(self.ends[0])

    def each(self) -> "Iterator[tuple[Past, slice]]":
        """Each sequence of a varlen batch as a batch of its own, and the columns of its new tokens."""
        assert self.cu_seqlens is not None
        for b, (start, end) in enumerate(pairwise(self.cu_seqlens.tolist())):
            yield Past(self.block_table[b : b + 1], self.ends[b : b + 1]), slice(start, end)

    def sequences(self, q: Tensor) -> "Iterator[tuple[Past, Tensor]]":
        """Each sequence as a batch of its own, and its queries [1, H, t, D].

        q   [B, H, T, D], of a varlen batch [1, H, N, D]
        """
        if self.cu_seqlens is not None:
            for one, columns in self.each():
                yield one, q[:, :, columns]
            return
        for b in range(len(self.ends)):
            yield Past(self.block_table[b : b + 1], self.ends[b : b + 1]), q[b : b + 1]

    def rows(self) -> slice | None:
        """The pages as a slice if each sequence has one page and these follow each other; else None"""
        batch, num_pages = self.block_table.shape
        if num_pages != 1:
            return None
        first = int(self.block_table[0, 0])
        is_run = batch == 1 or bool((np.diff(self.block_table[:, 0]) == 1).all())
        return slice(first, first + batch) if is_run and first != EVICTED else None

    def pages_there(self, page_size: int) -> list[int]:
        """Columns of the block table whose page any sequence holds."""
        used = self.block_table[:, : -(-self.num_slots // page_size)]
        return np.flatnonzero((used != EVICTED).any(0)).tolist()

    def pages_read(self, page_size: int) -> tuple[Tensor, int]:
        """[B, pages] int64: pages to read, those of `pages_there`; and how many of their slots are in use.

        A page that only other sequences hold is hidden from a sequence's queries: it reads its last page instead.
        """
        there = self.pages_there(page_size)
        table = self.block_table[:, there]
        used = torch.from_numpy(np.where(table == EVICTED, table[:, -1:], table)).long()
        return used, self.num_slots - (there[-1] + 1 - len(there)) * page_size

    def slots_there(self, page_size: int) -> Tensor:
        """[S] int64: slots in `pages_there`, ascending"""
        firsts = page_size * torch.tensor(self.pages_there(page_size))
        slots = (firsts[:, None] + torch.arange(page_size)).flatten()
        return slots[slots < self.num_slots]
