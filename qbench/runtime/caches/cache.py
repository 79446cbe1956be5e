"""Caches: each owns the keys and values of a sequence, and the attention over them."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from qbench.runtime.attention.rope import rotate
from qbench.runtime.attention.ruled_attention import ruled_attention
from qbench.runtime.caches.kernel_view import KernelView
from qbench.runtime.caches.sequences import CacheConfig, Sequences, check_seq_len
from quant.errors import InputError
from quant.models import AttentionRule


class Cache(Sequences):
    """The contract between a model and whatever holds its past: `attend` once a layer between `begin` and `advance`."""

    one_width: bool = True  # whether keys and values are as wide as each other

    def has_kernel_view(self, num_tokens: int) -> bool:
        """Whether `kernel_view` can be asked in this forward pass of so many tokens per sequence."""
        return False

    def kernel_view(self, num_tokens: int) -> KernelView:
        """Stores and places for one call of cpu_kernels over all layers, which takes the place of `attend`.

        num_tokens  new ones of each sequence, of a varlen batch all together
        """
        raise NotImplementedError(f"{type(self).__name__} has no kernel view")

    @abstractmethod
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        """Store k and v of the new tokens and attend over all that each query may see.

        q          [B, H, T, D] float32, rotated; of a varlen batch [1, H, N, D], and so on
        k, v       [B, G, T, D] float32, k rotated; head h reads kv head h // (H / G)
        positions  [T] int64, length .. length + T - 1; of a varlen batch [N]
        returns    [B, H, T, D] float32
        """

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        """`attend` of q and k that are still to be rotated by `rope`: cos and sin of the new tokens."""
        return self.attend(layer, rotate(q, *rope), rotate(k, *rope), v, positions)


class TorchCache(Cache):
    """A cache whose sequences are attended to in torch, of a varlen batch one by one."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        if self.cu_seqlens is None:
            return self._attend(layer, slice(None), self.seq_len, q, k, v)
        parts = []
        for b, (start, end) in enumerate(pairwise(self.cu_seqlens.tolist())):
            new = (x[:, :, start:end] for x in (q, k, v))  # [1, heads, T, D]
            parts.append(self._attend(layer, slice(b, b + 1), int(self.seq_lens[b]), *new))
        return torch.cat(parts, dim=2)

    @abstractmethod
    def _attend(self, layer: int, which: slice, seq_len: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`attend` of the sequences `which`, all of which hold `seq_len` tokens."""


class NoCache(TorchCache):
    """Nothing kept: the new tokens are the whole sequence."""

    one_width = False

    @property
    def bytes_per_token(self) -> int:
        return 0

    @property
    def size_bytes(self) -> int:
        return 0

    def _attend(self, layer: int, which: slice, seq_len: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return causal_attention(q, k, v, self.rules[layer])


class DenseCache(TorchCache):
    """Float32 keys and values of every token, in order; capacity grows as needed, up to the model's context."""

    one_width = False

    def __init__(self, config: CacheConfig, batch: int = 1, capacity: int = 256) -> None:
        if batch < 1 or capacity < 1:
            raise InputError(f"cache of batch {batch} and capacity {capacity}, expected at least 1 of each")
        super().__init__(config, batch)
        shape = (batch, config.num_kv_heads, min(capacity, self.max_seq_len))
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

    def _attend(self, layer: int, which: slice, seq_len: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return causal_attention(q, *self._store(layer, which, seq_len, k, v), self.rules[layer])

    def _store(self, layer: int, which: slice, seq_len: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, G, S, D] of the sequences `which`, those of the new tokens behind the `seq_len` held."""
        end = seq_len + k.shape[2]
        self._reserve(layer, end)
        keys, values = self.keys[layer][which, :, :end], self.values[layer][which, :, :end]
        keys[:, :, seq_len:] = k
        values[:, :, seq_len:] = v
        return keys, values

    def _reserve(self, layer: int, seq_len: int) -> None:
        capacity = self.keys[layer].shape[2]
        if seq_len <= capacity:
            return
        check_seq_len(seq_len, self.max_seq_len)
        capacity = min(max(seq_len, 2 * capacity), self.max_seq_len)  # doubling: each token is copied once on average
        for held in (self.keys, self.values):
            grown = held[layer].new_empty(*held[layer].shape[:2], capacity, held[layer].shape[3])
            grown[:, :, : held[layer].shape[2]] = held[layer]  # of a varlen batch some have their new tokens already
            held[layer] = grown


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
