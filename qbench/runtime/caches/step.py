"""`Step`: the tokens that one forward pass brings to each sequence of a cache. `Past`: the slots that they see."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens of one forward pass, as layers see them.

    If all sequences hold as many tokens and get as many new ones, these are [B, T]. Else the batch is varlen: the new
    tokens of all sequences are joined in one row [1, N] without padding, and only the cache knows the end of each
    sequence. A layer need not distinguish the two.

    tokens     [B, T] int64, of a varlen batch [1, N]
    seq_len    tokens held before it, of a varlen batch of the longest
    end        positions that the model needs: tokens of the longest sequence after it
    counts     [B] int64 tokens of each sequence; None: T for each
    places     [N] int64: index of each token of a varlen batch among the B * T given
    positions  [T] int64, of a varlen batch [N]
    added      [B] int64 of tokens that are new, where a forward pass reads old ones, too; None: all
    num_asked  of T, the last so many were given; None: all
    asked      of a varlen batch, rows of the tokens that were given; None: all
    """

    tokens: Tensor
    seq_len: int
    end: int
    counts: np.ndarray | None = None
    places: Tensor | None = None
    varlen_positions: Tensor | None = None
    added: np.ndarray | None = None
    num_asked: int | None = None
    asked: Tensor | None = None

    @property
    def num_new(self) -> int | np.ndarray:
        """New tokens of every sequence, of a varlen batch [B] of each."""
        if self.counts is None:
            return self.tokens.shape[1] if self.num_asked is None else self.num_asked
        return self.counts if self.added is None else self.added

    @property
    def cu_seqlens(self) -> np.ndarray | None:
        """[B + 1] int64: rows cu_seqlens[b] up to cu_seqlens[b + 1] of a varlen batch are those of sequence b."""
        return None if self.counts is None else np.concatenate(([0], np.cumsum(self.counts)))

    @property
    def positions(self) -> Tensor:
        return torch.arange(self.seq_len, self.end) if self.varlen_positions is None else self.varlen_positions

    def wanted(self, x: Tensor, last_only: bool) -> Tensor:
        """x of the tokens whose logits are asked for: all that were given, or the last of each sequence.

        x        [B, T, K], of a varlen batch [1, N, K]
        returns  as x; with last_only [B, 1, K], of a varlen batch [1, B, K]
        """
        if self.counts is None:
            num_asked = 1 if last_only else self.num_asked
            return x if num_asked is None else x[:, -num_asked:]
        if last_only:
            return x[:, np.cumsum(self.counts) - 1]
        return x if self.asked is None else x[:, self.asked]

    def as_given(self, y: Tensor, batch: int, num_tokens: int, last_only: bool) -> Tensor:
        """The layers' output `y` in the shape of the given tokens, NaN at padding.

        y        [B, T, V], of a varlen batch [1, N, V]; with last_only of the last tokens
        returns  [batch, num_tokens, V], with last_only [batch, 1, V]
        """
        if self.counts is None:
            return y
        if last_only:
            return y.transpose(0, 1)
        if y.shape[1] == batch * num_tokens:
            return y.unflatten(1, (batch, num_tokens))[0]
        out = y.new_full((batch * num_tokens, y.shape[-1]), torch.nan)
        out[self.places] = y[0]
        return out.unflatten(0, (batch, num_tokens))


def varlen_step(tokens: Tensor, seq_lens: np.ndarray, counts: np.ndarray, num_left: np.ndarray | None = None) -> Step:
    """The step that brings counts[b] tokens, 1 or more, to a sequence that holds lengths[b].

    tokens    [B, T] int64, padded: row b has its tokens in columns num_left[b] up to num_left[b] + counts[b]
    num_left  [B] int64; None: 0
    """
    batch, num_columns = tokens.shape
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)  # [N]: number within its sequence
    first = np.arange(batch) * num_columns + (0 if num_left is None else num_left)  # [B]: place of each first token
    places = torch.from_numpy(np.repeat(first, counts) + within)
    positions = torch.from_numpy(np.repeat(seq_lens, counts) + within)
    ends = seq_lens + counts
    return Step(tokens.reshape(-1)[places][None], int(seq_lens.max()), int(ends.max()), counts, places, positions)


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
