"""Sequences: the counts of tokens that every cache has, whatever it stores."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from qbench.runtime.caches.step import Step, varlen_step
from qbench.runtime.caches.step_reads import TierReads
from quant.errors import InputError
from quant.models import AttentionRule


class CacheConfig(Protocol):
    """Sizes that a cache of keys and values asks a model for; ModelConfig has them, and more."""

    @property
    def num_layers(self) -> int: ...

    @property
    def num_kv_heads(self) -> int: ...

    @property
    def head_dim(self) -> int: ...

    @property
    def value_dim(self) -> int: ...

    @property
    def max_positions(self) -> int: ...

    def attention_rule(self, layer: int) -> AttentionRule: ...


class Sequences(ABC):
    """Token bookkeeping for a batch of sequences: lengths, next positions, truncation.

    A forward pass calls `begin`, then `advance`. If sequences differ in the tokens that they hold or get, the batch is
    varlen: [1, N] tokens, one sequence's after another's, and `cu_seqlens` says whose they are. Each sequence's result
    is the same as if it ran alone.

    seq_lens          [B] int64: tokens held of each sequence
    seq_len           of the longest
    rules             how each layer attends
    max_seq_len       most tokens of a sequence: as many as the model's context holds
    max_held          most tokens of a sequence in a cache of fixed size; None: max_seq_len
    max_chunk_tokens  most tokens that a sequence may get at once; None: any number
    cu_seqlens        of the forward pass that runs, as `Step.cu_seqlens`; None: [B, T] tokens of uniform sequences
    """

    seq_len: int = 0
    max_held: int | None = None
    max_chunk_tokens: int | None = None
    cu_seqlens: np.ndarray | None = None
    _num_left: np.ndarray | None = None

    def __init__(self, config: CacheConfig, batch: int = 1) -> None:
        self.rules = [config.attention_rule(layer) for layer in range(config.num_layers)]
        self.batch = batch
        self.max_seq_len = config.max_positions
        self._seq_lens: np.ndarray | None = None  # None: all hold `seq_len`, and a decode step touches no array

    @property
    def seq_lens(self) -> np.ndarray:
        return np.full(self.batch, self.seq_len) if self._seq_lens is None else self._seq_lens

    @seq_lens.setter
    def seq_lens(self, seq_lens: np.ndarray) -> None:
        self.seq_len = int(seq_lens.max(initial=0))
        self._seq_lens = None if (seq_lens == self.seq_len).all() else seq_lens

    def pad_left(self, num_columns: Sequence[int] | np.ndarray) -> None:
        """The first columns of each row of the tokens that come next are padding: nothing sees them or counts them.

        num_columns  [B]
        raises       InputError if there are tokens already
        """
        num_columns = np.asarray(num_columns, dtype=np.int64)
        if self.seq_len or num_columns.shape != (self.batch,) or num_columns.min() < 0:
            raise InputError(
                f"padding {num_columns.tolist()} on the left of {self.batch} sequences of up to {self.seq_len} tokens, "
                "expected a number of columns for each, before the first token"
            )
        self._num_left = num_columns

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        """The forward pass over these tokens.

        tokens     [B, T] int64
        num_valid  [B]: of row b the first num_valid[b] columns are tokens, the rest padding; None: all T
        raises     InputError for another batch than the cache's, a row without a token, or more than there is room for
        """
        step = self._step(tokens, num_valid)
        self._check_room(step.end)
        self.cu_seqlens = step.cu_seqlens
        return step

    def _step(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None) -> Step:
        batch, num_columns = tokens.shape
        if batch != self.batch:
            raise InputError(f"tokens of {batch} sequences, expected {self.batch} as the cache holds")
        if num_valid is None and self._num_left is None and self._seq_lens is None:
            start = self.next_position(self.seq_len)
            return Step(tokens, start, start + num_columns)
        first, end = self._valid(tokens, num_valid)
        return varlen_step(tokens, self.next_position(self.seq_lens), end - first, self._num_left)

    def next_position(self, seq_lens: Any) -> Any:
        """Position of the token that follows `seq_lens` others, an int or [B] int64."""
        return seq_lens

    def _valid(
        self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None
    ) -> tuple[np.ndarray | int, np.ndarray]:
        """Columns of each row's first token, 0 for all, and behind its last, [B]"""
        batch, num_columns = tokens.shape
        end = np.full(batch, num_columns) if num_valid is None else np.asarray(num_valid, dtype=np.int64)
        first = 0 if self._num_left is None else self._num_left
        counts = end - first
        if counts.shape != (batch,) or counts.min() < 1 or end.max() > num_columns:
            raise InputError(f"rows with {counts.tolist()} tokens, expected 1 to {num_columns} for each of {batch}")
        return first, end

    def mark(self) -> None:
        """Remember everything that is held, so that `truncate` to this length works once tokens have been evicted.

        Caches that evict nothing need no mark.
        """
        return

    def go_to(
        self,
        positions: Sequence[int] | np.ndarray | Tensor,
        tokens: Tensor,
        num_valid: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        """Set the positions of the next tokens: held tokens from there on are forgotten.

        positions  [T], or [B, T] of each sequence; those of padding are not looked at
        raises     InputError for positions that do not follow each other, or would leave tokens out before them
        """
        batch, num_columns = tokens.shape
        if batch != self.batch:
            raise InputError(f"tokens of {batch} sequences, expected {self.batch} as the cache holds")
        given = np.asarray(positions)
        if given.shape not in ((num_columns,), (batch, num_columns)) or given.dtype.kind not in "iu":
            raise InputError(
                f"cache_position of {given.dtype} {list(given.shape)}, expected whole numbers [{num_columns}] or "
                f"[{batch}, {num_columns}]"
            )
        first, end = self._valid(tokens, num_valid)
        rows = np.broadcast_to(given, (batch, num_columns)).astype(np.int64)
        starts = rows[np.arange(batch), first]
        for b, row in enumerate(rows):
            row = row[first if isinstance(first, int) else first[b] : end[b]]
            if not 0 <= starts[b] <= self.seq_lens[b] or (np.diff(row) != 1).any():
                raise InputError(
                    f"cache_position {row.tolist()} of sequence {b}, which holds {self.seq_lens[b]} tokens; expected "
                    f"one after another, from 0 to {self.seq_lens[b]} on"
                )
        if (starts < self.seq_lens).any():
            longest = int((starts + end - first).max())  # nothing is forgotten for a forward pass that cannot be
            check_seq_len(longest, self.max_seq_len)
            self._check_room(longest)
            self.truncate(starts)

    def _check_room(self, seq_len: int) -> None:
        if self.max_held is not None and seq_len > self.max_held:
            raise InputError(f"{seq_len} tokens, but the static cache has room for {self.max_held}; make it larger")

    def advance(self, num_tokens: int | np.ndarray) -> None:
        """num_tokens: new ones of every sequence, or [B] of each"""
        self._num_left = None
        if self._seq_lens is None and isinstance(num_tokens, int):
            self.seq_len += num_tokens
        else:
            self.seq_lens = self.seq_lens + num_tokens

    def truncate(self, seq_len: int | np.ndarray) -> None:
        """Forget all tokens from `seq_len` on, keeping the memory: a benchmark's next repetition starts here.

        seq_len  of all sequences, of which shorter ones keep theirs; or [B] int64 of each
        """
        if isinstance(seq_len, int):
            if not 0 <= seq_len <= self.seq_len:
                raise ValueError(f"truncate to {seq_len}, expected 0 to {self.seq_len}")
            seq_len = np.minimum(self.seq_lens, seq_len)
        elif seq_len.shape != (self.batch,) or not ((seq_len >= 0) & (seq_len <= self.seq_lens)).all():
            raise ValueError(f"truncate to {seq_len.tolist()}, expected up to {self.seq_lens.tolist()}")
        self.seq_lens = seq_len

    @property
    def is_padded(self) -> bool:
        """Whether the next tokens are padded on the left."""
        return self._num_left is not None

    @property
    def tokens_read(self) -> float | None:
        """Tokens that a query of a decode step read on average, if a policy chooses them"""
        return None

    @property
    def tier_reads(self) -> TierReads | None:
        """Blocks that decode steps read from a disk; None if all are in memory"""
        return None

    @property
    def peak_bytes(self) -> int | None:
        """Most memory that keys and values held; None if they never hold more than in the end"""
        return None

    @property
    @abstractmethod
    def bytes_per_token(self) -> float:
        """Bytes that one token of one sequence takes, over all layers; a fraction where tokens share a scale."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Memory that keys and values hold."""


def check_seq_len(seq_len: int, max_seq_len: int) -> None:
    if seq_len > max_seq_len:
        raise InputError(f"{seq_len} tokens, but the model's context holds {max_seq_len}; shorten the text")
