"""Caches: each owns the keys and values of a sequence, and the attention over them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from qbench.runtime.caches.step import Step, ragged_step
from qbench.runtime.layers.rope import rotate
from qbench.runtime.layers.ruled_attention import ruled_attention
from quant.errors import InputError
from quant.models import AttentionRule, ModelConfig


class Cache(ABC):
    """The contract between a model and whatever holds its past.

    A forward pass calls `begin`, `attend` once a layer, then `advance`. Where sequences differ in the tokens that they
    hold or get, the pass is ragged: [1, N] tokens, one sequence's after another's, and `starts` says whose they are.
    Each sequence's result is then that of the sequence alone.

    lengths  [B] int64: tokens held of each sequence
    length   of the longest
    rules    how each layer attends
    limit    most tokens of a sequence: as many as the model's context holds
    room     of a cache that never takes more: tokens of a sequence; None: as many as the model's context holds
    longest_pass  most tokens that a sequence may get at once; None: any number
    starts   of the pass that runs, as `Step.starts`; None: [B, T] tokens, of sequences that are alike
    """

    length: int = 0
    one_width: bool = True  # whether keys and values are as wide as each other
    room: int | None = None
    longest_pass: int | None = None
    starts: np.ndarray | None = None
    _num_left: np.ndarray | None = None

    def __init__(self, config: ModelConfig, batch: int = 1) -> None:
        self.rules = [config.attention_rule(layer) for layer in range(config.num_layers)]
        self.batch = batch
        self.limit = config.max_positions
        self._lengths: np.ndarray | None = None  # None: all hold `length`, and a decode step touches no array

    @property
    def lengths(self) -> np.ndarray:
        return np.full(self.batch, self.length) if self._lengths is None else self._lengths

    @lengths.setter
    def lengths(self, lengths: np.ndarray) -> None:
        self.length = int(lengths.max(initial=0))
        self._lengths = None if (lengths == self.length).all() else lengths

    def pad_left(self, num_columns: Sequence[int] | np.ndarray) -> None:
        """The first columns of each row of the tokens that come next are padding: nothing sees them or counts them.

        num_columns  [B]
        raises       InputError where there are tokens already
        """
        num_columns = np.asarray(num_columns, dtype=np.int64)
        if self.length or num_columns.shape != (self.batch,) or num_columns.min() < 0:
            raise InputError(
                f"padding {num_columns.tolist()} on the left of {self.batch} sequences of up to {self.length} tokens, "
                "expected a number of columns for each, before the first token"
            )
        self._num_left = num_columns

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        """The pass over these tokens.

        tokens     [B, T] int64
        num_valid  [B]: of row b the first num_valid[b] columns are tokens, the rest padding; None: all T
        raises     InputError for another batch than the cache's, a row without a token, or more than there is room for
        """
        step = self._step(tokens, num_valid)
        self._check_room(step.end)
        self.starts = step.starts
        return step

    def _step(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None) -> Step:
        batch, num_columns = tokens.shape
        if batch != self.batch:
            raise InputError(f"tokens of {batch} sequences, expected {self.batch} as the cache holds")
        if num_valid is None and self._num_left is None and self._lengths is None:
            start = self.next_position(self.length)
            return Step(tokens, start, start + num_columns)
        first, end = self._valid(tokens, num_valid)
        return ragged_step(tokens, self.next_position(self.lengths), end - first, self._num_left)

    def next_position(self, lengths: Any) -> Any:
        """Of the token that follows `lengths` others, an int or [B] int64."""
        return lengths

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

    def go_to(
        self,
        positions: Sequence[int] | np.ndarray | Tensor,
        tokens: Tensor,
        num_valid: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        """The tokens that come next stand at these positions: what was held from there on is forgotten.

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
            if not 0 <= starts[b] <= self.lengths[b] or (np.diff(row) != 1).any():
                raise InputError(
                    f"cache_position {row.tolist()} of sequence {b}, which holds {self.lengths[b]} tokens; expected "
                    f"one after another, from 0 to {self.lengths[b]} on"
                )
        if (starts < self.lengths).any():
            longest = int((starts + end - first).max())  # nothing is forgotten for a pass that cannot be
            check_room(longest, self.limit)
            self._check_room(longest)
            self.truncate(starts)

    def _check_room(self, length: int) -> None:
        if self.room is not None and length > self.room:
            raise InputError(f"{length} tokens, but the static cache has room for {self.room}; make it larger")

    @abstractmethod
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        """Store k and v of the new tokens and attend over all that each query may see.

        q          [B, H, T, D] float32, rotated; of a ragged pass [1, H, N, D], and so on
        k, v       [B, G, T, D] float32, k rotated; head h reads kv head h // (H / G)
        positions  [T] int64, length .. length + T - 1; of a ragged pass [N]
        returns    [B, H, T, D] float32
        """

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        """`attend` of q and k that are still to be rotated by `rope`: cos and sin of the new tokens."""
        return self.attend(layer, rotate(q, *rope), rotate(k, *rope), v, positions)

    def advance(self, num_tokens: int | np.ndarray) -> None:
        """num_tokens: new ones of every sequence, or [B] of each"""
        self._num_left = None
        if self._lengths is None and isinstance(num_tokens, int):
            self.length += num_tokens
        else:
            self.lengths = self.lengths + num_tokens

    def truncate(self, length: int | np.ndarray) -> None:
        """Forget all tokens from `length` on, keeping the memory: a benchmark's next repetition starts here.

        length  of all sequences, of which shorter ones keep theirs; or [B] int64 of each
        """
        if isinstance(length, int):
            if not 0 <= length <= self.length:
                raise ValueError(f"truncate to {length}, expected 0 to {self.length}")
            length = np.minimum(self.lengths, length)
        elif length.shape != (self.batch,) or not ((length >= 0) & (length <= self.lengths)).all():
            raise ValueError(f"truncate to {length.tolist()}, expected up to {self.lengths.tolist()}")
        self.lengths = length

    @property
    def is_padded(self) -> bool:
        """Whether the next tokens are padded on the left."""
        return self._num_left is not None

    @property
    @abstractmethod
    def bytes_per_token(self) -> float:
        """Bytes that one token of one sequence takes, over all layers; a fraction where tokens share a scale."""


class TorchCache(Cache):
    """A cache whose sequences are attended to in torch, of a ragged pass one by one."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        if self.starts is None:
            return self._attend(layer, slice(None), self.length, q, k, v)
        parts = []
        for b, (start, end) in enumerate(pairwise(self.starts.tolist())):
            new = (x[:, :, start:end] for x in (q, k, v))  # [1, heads, T, D]
            parts.append(self._attend(layer, slice(b, b + 1), int(self.lengths[b]), *new))
        return torch.cat(parts, dim=2)

    @abstractmethod
    def _attend(self, layer: int, which: slice, length: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`attend` of the sequences `which`, all of which hold `length` tokens."""


class NoCache(TorchCache):
    """Nothing kept: the new tokens are the whole sequence."""

    bytes_per_token = 0
    one_width = False

    def _attend(self, layer: int, which: slice, length: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return causal_attention(q, k, v, self.rules[layer])


class DenseCache(TorchCache):
    """Float32 keys and values of every token, in order; capacity grows as needed, up to the model's context."""

    one_width = False

    def __init__(self, config: ModelConfig, batch: int = 1, capacity: int = 256) -> None:
        if batch < 1 or capacity < 1:
            raise InputError(f"cache of batch {batch} and capacity {capacity}, expected at least 1 of each")
        super().__init__(config, batch)
        shape = (batch, config.num_kv_heads, min(capacity, self.limit))
        self.keys = [torch.empty(*shape, config.head_dim) for _ in range(config.num_layers)]  # [B, G, C, D] each
        self.values = [torch.empty(*shape, config.value_dim) for _ in range(config.num_layers)]

    @property
    def capacity(self) -> int:
        return self.keys[0].shape[2]

    @property
    def bytes_per_token(self) -> int:
        return sum(held[:1, :, :1].nbytes for held in (*self.keys, *self.values))

    @property
    def size_bytes(self) -> int:
        return self.batch * self.capacity * self.bytes_per_token

    def _attend(self, layer: int, which: slice, length: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return causal_attention(q, *self._store(layer, which, length, k, v), self.rules[layer])

    def _store(self, layer: int, which: slice, length: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, G, S, D] of the sequences `which`, those of the new tokens behind the `length` held."""
        end = length + k.shape[2]
        self._reserve(layer, end)
        keys, values = self.keys[layer][which, :, :end], self.values[layer][which, :, :end]
        keys[:, :, length:] = k
        values[:, :, length:] = v
        return keys, values

    def _reserve(self, layer: int, length: int) -> None:
        capacity = self.keys[layer].shape[2]
        if length <= capacity:
            return
        check_room(length, self.limit)
        capacity = min(max(length, 2 * capacity), self.limit)  # doubling: each token is copied once on average
        for held in (self.keys, self.values):
            grown = held[layer].new_empty(*held[layer].shape[:2], capacity, held[layer].shape[3])
            grown[:, :, : held[layer].shape[2]] = held[layer]  # of a ragged pass some have their new tokens already
            held[layer] = grown


def check_room(length: int, limit: int) -> None:
    if length > limit:
        raise InputError(f"{length} tokens, but the model's context holds {limit}; shorten the text")


def causal_attention(q: Tensor, k: Tensor, v: Tensor, rule: AttentionRule) -> Tensor:
    """softmax(scale q k^T) v, where the queries are the last T of S tokens and see none after themselves.

    The rule may hide keys, and change the scores before the softmax.

    q        [B, H, T, D]
    k, v     [B, G, S, D] and [B, G, S, V], S >= T, H a multiple of G
    returns  [B, H, T, V]
    """
    batch, num_heads, num_queries, head_dim = q.shape
    if rule.window:  # keys before the first query's window are nobody's
        k, v = (x[:, :, -(rule.window + num_queries - 1) :] for x in (k, v))
    if not rule.is_plain:
        return ruled_attention(q, k, v, rule)
    num_kv_heads, num_keys = k.shape[1:3]
    if num_queries == 1:
        # No mask, so the query heads of one kv head are the rows of one product: keys are read once, not H / G times.
        grouped = q.reshape(batch, num_kv_heads, num_heads // num_kv_heads, head_dim)  # [B, G, H/G, D]
        with _threads_for(k):
            out = F.scaled_dot_product_attention(grouped, k, v, scale=rule.scale)
            return out.reshape(*q.shape[:-1], v.shape[-1])
    is_causal = num_queries == num_keys and not 0 < rule.window < num_keys
    mask = None if is_causal else sees(num_queries, num_keys, rule.window, q.device)
    value_dim = v.shape[-1]
    if value_dim < head_dim:  # torch keeps a float for every pair of query and key unless v is as wide as k
        v = F.pad(v, (0, head_dim - value_dim))
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=is_causal, enable_gqa=True, scale=rule.scale
    )
    return out[..., :value_dim]


# 256 keys of 8 heads of 64: about 60 us of work. torch spreads one query over all threads however short the context is,
# and where the cores are shared each of a step's layers then waits for the last of them to be scheduled.
SMALL_KEYS = 1 << 17


@contextmanager
def _threads_for(k: Tensor) -> Iterator[None]:
    """One thread of torch inside the block if the keys of a single query are few; as many as before after it."""
    before = torch.get_num_threads()
    if before == 1 or k.numel() > SMALL_KEYS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def sees(num_queries: int, num_keys: int, window: int, device: torch.device) -> Tensor:
    """[T, S] bool: query t sees keys 0 .. S - T + t, and of those the last `window` alone, if it is above 0."""
    last = num_keys - num_queries  # key of query 0
    seen = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril(last)
    return seen.triu(last - window + 1) if window else seen
