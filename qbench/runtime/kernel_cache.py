"""KernelCache: keys and values in cpu_kernels' stores, which append to them and attend over them."""

import importlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.cache import Cache, check_room
from qbench.runtime.linear import has_cpu_kernels
from quant.errors import InputError
from quant.kv import KVScheme
from quant.models import ModelConfig

BLOCK_TOKENS = 16  # a store holds whole blocks of so many

# KV format -> the store's format, and where the scales of float8 come from; None: floats as they come
STORES: dict[str | None, tuple[str, str]] = {
    None: ("f32", "given"),
    "kv-f16": ("f16", "given"),
    "kv-bf16": ("bf16", "given"),
    "kv-fp8": ("e4m3", "per_head"),
    "kv-fp8-tensor": ("e4m3", "per_tensor"),
    "kv-fp8-cal": ("e4m3", "given"),
    "kv-fp8-cal-head": ("e4m3", "given"),
    "kv-fp8-e5m2": ("e5m2", "per_head"),
    "kv-fp8-e5m2-cal": ("e5m2", "given"),
    "kv-int8": ("int8", "given"),
    "kv-int4": ("int4", "given"),
}


def has_store(config: ModelConfig, scheme: KVScheme | None) -> bool:
    """Whether the kernels hold keys and values of this model in this format."""
    name = None if scheme is None else scheme.format.name
    if name not in STORES or not has_cpu_kernels():
        return False
    return importlib.import_module("cpu_kernels").has_kv_store(STORES[name][0], config.head_dim)


def held_tokens(num_tokens: int) -> int:
    """Tokens that a store of room for num_tokens holds."""
    return -(-num_tokens // BLOCK_TOKENS) * BLOCK_TOKENS


class KernelCache(Cache):
    """One store a layer, one page of it a sequence; pages grow as needed, up to the model's context.

    scheme   format of keys and values; None: float32
    raises   InputError for impossible sizes
    """

    def __init__(
        self, config: ModelConfig, scheme: KVScheme | None = None, batch: int = 1, capacity: int = 256
    ) -> None:
        if batch < 1 or capacity < 1:
            raise InputError(f"cache of batch {batch} and capacity {capacity}, expected at least 1 of each")
        self.limit = config.max_positions
        self.batch = batch
        self.softmax_scale = config.head_dim**-0.5
        self._room = 0  # tokens that every store has room for, at least
        self._lengths = np.zeros(batch, dtype=np.int64)  # of the pass that runs, the same for every layer
        self.block_table = np.arange(batch, dtype=np.int32)[:, None]
        page_size = held_tokens(min(capacity, self.limit))
        self.stores = [_store(config, scheme, layer, batch, page_size) for layer in range(config.num_layers)]

    @property
    def capacity(self) -> int:
        return self.stores[0].page_size

    @property
    def bytes_per_token(self) -> float:
        return self.size_bytes / (self.batch * self.capacity)

    @property
    def size_bytes(self) -> int:
        return sum(store.nbytes for store in self.stores)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        store, lengths = self.reserve(layer, k.shape[2])
        store.append(k.numpy(), v.numpy(), self.block_table, lengths)
        return self._attend(store, q, lengths)

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        store, lengths = self.reserve(layer, k.shape[2])
        rotated = torch.empty_like(q)
        cos, sin = (angles.numpy() for angles in rope)
        store.rope_append(q.numpy(), k.numpy(), v.numpy(), cos, sin, self.block_table, lengths, rotated.numpy())
        return self._attend(store, rotated, lengths)

    def truncate(self, length: int) -> None:
        """Forget all tokens from `length` on, keeping the memory: a benchmark's next repetition starts here."""
        if not 0 <= length <= self.length:
            raise ValueError(f"truncate to {length}, expected 0 to {self.length}")
        self.length = length

    def _attend(self, store: Any, q: Tensor, lengths: np.ndarray) -> Tensor:
        """-> [B, H, T, D], in memory [B, T, H, D] as the product that follows reads it"""
        batch, num_heads, num_tokens, head_dim = q.shape
        out = q.new_empty(batch, num_tokens, num_heads, head_dim).transpose(1, 2)
        store.attend(q.numpy(), self.block_table, lengths, out.numpy(), self.softmax_scale)
        return out

    def reserve_all(self, num_tokens: int) -> tuple[list[Any], np.ndarray]:
        """`reserve` of every layer."""
        for layer in range(len(self.stores) if self.length + num_tokens > self._room else 0):
            self.reserve(layer, num_tokens)
        self._room = self.stores[-1].page_size
        return self.stores, self.reserve(0, num_tokens)[1]

    def reserve(self, layer: int, num_tokens: int) -> tuple[Any, np.ndarray]:
        """The layer's store, and the sequences' lengths with num_tokens more; the store has room for them."""
        store, length = self.stores[layer], self.length + num_tokens
        check_room(length, self.limit)
        if length > store.page_size:
            # doubling: each token is copied once on average
            store.grow(held_tokens(min(max(length, 2 * store.page_size), self.limit)))
        if self._lengths[0] != length:
            self._lengths = np.full(self.batch, length)
        return store, self._lengths


def _store(config: ModelConfig, scheme: KVScheme | None, layer: int, batch: int, page_size: int) -> Any:
    name, scales = STORES[None if scheme is None else scheme.format.name]
    given = () if scheme is None or scheme.k_scale is None else (scheme.k_scale[layer], scheme.v_scale[layer])
    kernels = importlib.import_module("cpu_kernels")
    return kernels.KVStore(name, batch, page_size, config.num_kv_heads, config.head_dim, scales, *given)
