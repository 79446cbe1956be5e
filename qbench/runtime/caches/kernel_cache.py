"""KernelCache: keys and values in cpu_kernels' stores, which append to them and attend over them."""

import importlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.kernel_view import KernelView
from qbench.runtime.caches.sequences import check_seq_len
from qbench.runtime.caches.step import Step
from qbench.runtime.kernel_steps import weighs_scores
from quant.errors import InputError
from quant.extension import has_cpu_kernels
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
    "kv-kivi-4": ("kivi4", "given"),
    "kv-kivi-2": ("kivi2", "given"),
}


def has_store(config: ModelConfig, scheme: KVScheme | None) -> bool:
    """Whether the kernels hold keys and values of this model in this format, and attend to them by its rules."""
    name = None if scheme is None else scheme.format.name
    if name not in STORES or not weighs_scores(config) or not has_cpu_kernels():
        return False
    return importlib.import_module("cpu_kernels").has_kv_store(STORES[name][0], config.head_dim)


def held_tokens(num_tokens: int) -> int:
    """Tokens that a store of room for num_tokens holds."""
    return -(-num_tokens // BLOCK_TOKENS) * BLOCK_TOKENS


class StoreCache(Cache):
    """A cache whose keys and values are in cpu_kernels' stores; some rows of `layers.paths` call those themselves.

    stores       one a layer
    block_table  [B, pages] int32: where each sequence lies in them, in a forward pass
    """

    stores: list[Any]
    block_table: np.ndarray

    def __init__(self, config: ModelConfig, batch: int) -> None:
        super().__init__(config, batch)
        # Lengths after the forward pass that runs, the same for every layer.
        self._equal_ends = np.zeros(batch, dtype=np.int64)
        self._varlen_ends = self._equal_ends

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        if step.counts is not None:
            self._varlen_ends = self.seq_lens + step.counts
        return step

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        store, ends = self.reserve(layer, k.shape[2])
        store.append(k.numpy(), v.numpy(), self.block_table, ends, self.cu_seqlens)
        return self._attend(layer, q, ends)

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        if rope[0].shape[-1] < q.shape[-1]:  # a part of each head is rotated
            return super().rope_attend(layer, q, k, v, rope, positions)
        store, ends = self.reserve(layer, k.shape[2])
        rotated = torch.empty_like(q)
        cos, sin = (angles.numpy() for angles in rope)
        new = (q.numpy(), k.numpy(), v.numpy(), cos, sin)
        store.rope_append(*new, self.block_table, ends, rotated.numpy(), self.cu_seqlens)
        return self._attend(layer, rotated, ends)

    def _attend(self, layer: int, q: Tensor, ends: np.ndarray) -> Tensor:
        """-> [B, H, T, D], in memory [B, T, H, D] as the product that follows reads it"""
        batch, num_heads, num_tokens, head_dim = q.shape
        out = q.new_empty(batch, num_tokens, num_heads, head_dim).transpose(1, 2)
        rule, past = self.rules[layer], (self.block_table, ends)
        self.stores[layer].attend(q.numpy(), *past, out.numpy(), rule.scale, rule.window, self.cu_seqlens)
        return out

    def has_kernel_view(self, num_tokens: int) -> bool:
        return True

    def kernel_view(self, num_tokens: int) -> KernelView:
        stores, ends = self.reserve_all(num_tokens)
        return KernelView(stores, self.block_table, ends)

    def reserve_all(self, num_tokens: int) -> tuple[list[Any], np.ndarray]:
        """`reserve` of every layer."""
        for layer in range(1, len(self.stores)):
            self.reserve(layer, num_tokens)
        return self.stores, self.reserve(0, num_tokens)[1]

    def reserve(self, layer: int, num_tokens: int) -> tuple[Any, np.ndarray]:
        """The layer's store, and the sequences' lengths after the forward pass; the store has room for them.

        num_tokens  new ones of each sequence, of a varlen batch all together
        """
        ends = self._ends(num_tokens)
        longest = int(ends.max())
        check_seq_len(longest, self.max_seq_len)
        self._reserve_layer(layer, longest)
        return self.stores[layer], ends

    @abstractmethod
    def _reserve_layer(self, layer: int, seq_len: int) -> None:
        """Room in the layer's store for sequences of up to so many tokens."""

    def _ends(self, num_tokens: int) -> np.ndarray:
        if self.cu_seqlens is not None:
            return self._varlen_ends
        seq_len = self.seq_len + num_tokens
        if self._equal_ends[0] != seq_len:
            self._equal_ends = np.full(self.batch, seq_len)
        return self._equal_ends


class KernelCache(StoreCache):
    """One store a layer, one page of it a sequence; pages grow as needed, up to the model's context.

    scheme   format of keys and values; None: float32
    raises   InputError for impossible sizes
    """

    def __init__(
        self, config: ModelConfig, scheme: KVScheme | None = None, batch: int = 1, capacity: int = 256
    ) -> None:
        if batch < 1 or capacity < 1:
            raise InputError(f"cache of batch {batch} and capacity {capacity}, expected at least 1 of each")
        super().__init__(config, batch)
        self._reserved = 0  # tokens that every store has room for, at least
        self.block_table = np.arange(batch, dtype=np.int32)[:, None]
        page_size = held_tokens(min(capacity, self.max_seq_len))
        self.stores = [make_store(config, scheme, layer, batch, page_size) for layer in range(config.num_layers)]

    @property
    def capacity(self) -> int:
        return self.stores[0].page_size

    @property
    def bytes_per_token(self) -> float:
        return self.size_bytes / (self.batch * self.capacity)

    @property
    def size_bytes(self) -> int:
        return sum(store.nbytes for store in self.stores)

    def reserve_all(self, num_tokens: int) -> tuple[list[Any], np.ndarray]:
        # A varlen batch brings no sequence more tokens than all together.
        if self.seq_len + num_tokens <= self._reserved:
            return self.stores, self._ends(num_tokens)
        stores, ends = super().reserve_all(num_tokens)
        self._reserved = self.stores[-1].page_size
        return stores, ends

    def _reserve_layer(self, layer: int, seq_len: int) -> None:
        store = self.stores[layer]
        if seq_len > store.page_size:
            # doubling: each token is copied once on average
            store.resize(held_tokens(min(max(seq_len, 2 * store.page_size), self.max_seq_len)))


def make_store(config: ModelConfig, scheme: KVScheme | None, layer: int, num_pages: int, page_size: int) -> Any:
    """The layer's KVStore."""
    name, scales = STORES[None if scheme is None else scheme.format.name]
    k_scale, v_scale = (None, None) if scheme is None else (scheme.k_scale, scheme.v_scale)
    given = () if k_scale is None or v_scale is None else (k_scale[layer], v_scale[layer])
    kernels = importlib.import_module("cpu_kernels")
    return kernels.KVStore(name, num_pages, page_size, config.num_kv_heads, config.head_dim, scales, *given)
