"""Caches: each owns the keys and values of a sequence, and the attention over them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from qbench.runtime.rope import rotate
from quant.errors import InputError
from quant.models import ModelConfig


class Cache(ABC):
    """The contract between a model and whatever holds its past.

    A forward pass over T tokens calls `attend` once a layer, then `advance(T)`.
    """

    length: int = 0  # tokens held

    @abstractmethod
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        """Store k and v of the new tokens and attend over all that each query may see.

        q          [B, H, T, D] float32, rotated
        k, v       [B, G, T, D] float32, k rotated; head h reads kv head h // (H / G)
        positions  [T] int64, length .. length + T - 1
        returns    [B, H, T, D] float32
        """

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        """`attend` of q and k that are still to be rotated by `rope`: cos and sin of the new tokens."""
        return self.attend(layer, rotate(q, *rope), rotate(k, *rope), v, positions)

    def advance(self, num_tokens: int) -> None:
        self.length += num_tokens

    @property
    @abstractmethod
    def bytes_per_token(self) -> float:
        """Bytes that one token of one sequence takes, over all layers; a fraction where tokens share a scale."""


class NoCache(Cache):
    """Nothing kept: the new tokens are the whole sequence."""

    bytes_per_token = 0

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        return causal_attention(q, k, v)


class DenseCache(Cache):
    """Float32 keys and values of every token, in order; capacity grows as needed, up to the model's context."""

    def __init__(self, config: ModelConfig, batch: int = 1, capacity: int = 256) -> None:
        if batch < 1 or capacity < 1:
            raise InputError(f"cache of batch {batch} and capacity {capacity}, expected at least 1 of each")
        self.limit = config.max_positions
        shape = (config.num_kv_heads, min(capacity, self.limit), config.head_dim)
        self.keys = [torch.empty(batch, *shape) for _ in range(config.num_layers)]  # [B, G, C, D] each
        self.values = [torch.empty(batch, *shape) for _ in range(config.num_layers)]

    @property
    def batch(self) -> int:
        return self.keys[0].shape[0]

    @property
    def capacity(self) -> int:
        return self.keys[0].shape[2]

    @property
    def bytes_per_token(self) -> int:
        return sum(held[:1, :, :1].nbytes for held in (*self.keys, *self.values))

    @property
    def size_bytes(self) -> int:
        return self.batch * self.capacity * self.bytes_per_token

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        end = self.length + k.shape[2]
        self._reserve(layer, end)
        keys, values = self.keys[layer][:, :, :end], self.values[layer][:, :, :end]  # [B, G, S, D]
        keys[:, :, self.length :] = k
        values[:, :, self.length :] = v
        return causal_attention(q, keys, values)

    def truncate(self, length: int) -> None:
        """Forget all tokens from `length` on, keeping the memory: a benchmark's next repetition starts here."""
        if not 0 <= length <= self.length:
            raise ValueError(f"truncate to {length}, expected 0 to {self.length}")
        self.length = length

    def _reserve(self, layer: int, length: int) -> None:
        capacity = self.keys[layer].shape[2]
        if length <= capacity:
            return
        check_room(length, self.limit)
        capacity = min(max(length, 2 * capacity), self.limit)  # doubling: each token is copied once on average
        for held in (self.keys, self.values):
            grown = held[layer].new_empty(*held[layer].shape[:2], capacity, held[layer].shape[3])
            grown[:, :, : self.length] = held[layer][:, :, : self.length]
            held[layer] = grown


def check_room(length: int, limit: int) -> None:
    if length > limit:
        raise InputError(f"{length} tokens, but the model's context holds {limit}; shorten the text")


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(D)) v, where the queries are the last T of S tokens and see none after themselves.

    q        [B, H, T, D]
    k, v     [B, G, S, D], S >= T, H a multiple of G
    returns  [B, H, T, D]
    """
    batch, num_heads, num_queries, head_dim = q.shape
    num_kv_heads, num_keys = k.shape[1:3]
    if num_queries == 1:
        # No mask, so the query heads of one kv head are the rows of one product: keys are read once, not H / G times.
        grouped = q.reshape(batch, num_kv_heads, num_heads // num_kv_heads, head_dim)  # [B, G, H/G, D]
        with _threads_for(k):
            return F.scaled_dot_product_attention(grouped, k, v).reshape(q.shape)
    mask = None if num_queries == num_keys else _sees(num_queries, num_keys, q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)


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


def _sees(num_queries: int, num_keys: int, device: torch.device) -> Tensor:
    """[T, S] bool: query t sees keys 0 .. S - T + t."""
    return torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril(num_keys - num_queries)
