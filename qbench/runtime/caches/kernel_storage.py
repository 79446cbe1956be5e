"""`KernelStorage`: keys and values of one layer in a store of cpu_kernels."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.policies import Observe
from qbench.runtime.attention.observed_weights import query_weights
from qbench.runtime.caches.kernel_cache import held_tokens
from qbench.runtime.caches.kv_storage import KVStorage
from quant.models import AttentionRule


class KernelStorage(KVStorage):
    """One page of the store per sequence. The kernels append, attend, weigh keys and move slots.

    store         cpu_kernels.KVStore with `batch` pages
    num_kv_heads  heads of the store, head_dim wide
    """

    one_width = True

    def __init__(self, store: Any, batch: int, num_kv_heads: int, head_dim: int) -> None:
        self.store, self.num_kv_heads, self.head_dim = store, num_kv_heads, head_dim
        self._table = np.arange(batch, dtype=np.int32)[:, None]

    @property
    def capacity(self) -> int:
        return self.store.page_size

    @property
    def size_bytes(self) -> int:
        return self.store.nbytes

    def reserve(self, capacity: int) -> None:
        if capacity > self.capacity:
            self.store.resize(held_tokens(capacity))

    def trim(self, num_held: int) -> None:
        if held_tokens(num_held) < self.capacity:
            self.store.resize(held_tokens(num_held))

    def append(self, which: slice, num_held: int, k: Tensor, v: Tensor, slots: Tensor | None = None) -> None:
        places = None if slots is None else slots.numpy()
        table = self._table[which]
        self.store.append(k.numpy(), v.numpy(), table, np.full(len(table), num_held + k.shape[2]), slots=places)

    def attend(
        self, which: slice, num_held: int, q: Tensor, rule: AttentionRule, observe: Observe | None
    ) -> tuple[Tensor, Tensor | Iterator[Tensor] | None]:
        batch, num_heads, num_tokens, head_dim = q.shape
        out = q.new_empty(batch, num_tokens, num_heads, head_dim).transpose(1, 2)
        table = self._table[which]
        ends = np.full(len(table), num_held)
        past = (q.numpy(), table, ends, out.numpy(), rule.scale, rule.window)
        if observe is None or (observe.each and num_tokens > 1):
            self.store.attend(*past)
            return out, None if observe is None else self._each(which, num_held, q, rule, observe)
        mass = torch.empty(batch, self.num_kv_heads, num_held)
        self.store.attend(*past, mass=mass.numpy(), mass_queries=min(observe.queries or 0, num_tokens))
        if observe.each:  # of the only query: its weights, averaged over the heads of a group
            return out, iter([mass[:, :, None] * (self.num_kv_heads / num_heads)])
        return out, mass

    def _each(self, which: slice, num_held: int, q: Tensor, rule: AttentionRule, observe: Observe) -> Iterator[Tensor]:
        """The weights of each observed query, in torch: [B, G, t, S] for some queries at a time"""
        keys, _ = self.read(which, num_held)
        return query_weights(q if observe.queries is None else q[:, :, -observe.queries :], keys, rule)

    def compact(self, which: slice, num_held: int, keep: Tensor) -> None:
        table = self._table[which]
        self.store.compact(table, np.full(len(table), num_held), keep.contiguous().numpy())

    def read(self, which: slice, num_held: int) -> tuple[Tensor, Tensor]:
        table = self._table[which]
        keys, values = torch.empty(2, len(table), self.num_kv_heads, num_held, self.head_dim).unbind()
        self.store.read(table, np.full(len(table), num_held), keys.numpy(), values.numpy())
        return keys, values

    def save(self) -> object:
        saved = [np.empty(self.store.page_bytes, dtype=np.uint8) for _ in self._table]
        for page, data in enumerate(saved):
            self.store.read_page(page, data)
        return self.capacity, saved

    def load(self, saved: object) -> None:
        assert isinstance(saved, tuple)
        capacity, pages = saved
        if capacity != self.capacity:
            self.store.resize(capacity)
        for page, data in enumerate(pages):
            self.store.write_page(page, data)
