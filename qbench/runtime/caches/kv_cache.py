"""`KVCache`: keys and values of every KV head, or rows of latents, in storages.

Queries see all tokens, or those of a window, unless another view is given.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.places.pages import PagedSequence, PagePool
from qbench.runtime.caches.places.places import Places, PoolPages
from qbench.runtime.caches.sequences import CacheConfig, check_seq_len
from qbench.runtime.caches.step import Past, Step
from qbench.runtime.caches.step_reads import TierReads
from qbench.runtime.caches.storage.kernel_storage import KernelStorage
from qbench.runtime.caches.storage.kv_storage import KVStorage
from qbench.runtime.caches.storage.latent_storage import LatentStorage
from qbench.runtime.caches.view.context_part import ContextPart
from qbench.runtime.caches.view.kernel_view import KernelView, LayerView
from qbench.runtime.caches.view.latent_view import Span, StoredLatents, each_token, spans_of
from qbench.runtime.caches.view.view import ALL_TOKENS, QKV, View
from quant.present import present


class KVCache(Cache):
    """Storages hold the bytes, `Places` say in which pages.

    groups    places of all layers, or of each group of layers that keep the same tokens
    memories  the storage of each layer
    mode      of latent attention, as `Latents.mode`; it has no effect if no latents are stored
    view      of this cache alone, unless it is the one of all tokens
    """

    def __init__(
        self, config: CacheConfig, *groups: Places[KVStorage], mode: str | None = None, view: View = ALL_TOKENS
    ) -> None:
        super().__init__(config, groups[0].batch)
        self.view = view
        if view.max_seq_len is not None:
            self.max_seq_len = view.max_seq_len
        self.groups = groups
        # layer -> its places, and its number among the layers that have them
        self._where = {layer: (its, index) for its in groups for index, layer in enumerate(its.layers)}
        where = (self._where[layer] for layer in range(config.num_layers))
        self.memories = [its.memories[index] for its, index in where]
        self.one_width = any(storage.one_width for storage in self.memories)
        self._stores = [storage.store for storage in self.memories if isinstance(storage, KernelStorage)]
        self._in_stores = len(self._stores) == len(self.memories)
        self._rows = [storage for storage in self.memories if isinstance(storage, LatentStorage)]
        latents = self.memories[0].latents
        self.latents = None if latents is None else replace(latents, mode=mode)
        self._room = 0  # tokens that every layer has room for, at least
        # Lengths after the forward pass that runs, the same for every layer.
        self._equal_ends = np.zeros(self.batch, dtype=np.int64)
        self._varlen_ends = self._equal_ends

    @property
    def places(self) -> Places[KVStorage]:
        """Places of the first group, which has all layers if it is the only one."""
        return self.groups[0]

    @property
    def bytes_per_token(self) -> float:
        return sum(places.bytes_per_token for places in self.groups)

    @property
    def size_bytes(self) -> int:
        return sum(places.size_bytes for places in self.groups)

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        check_seq_len(step.end, self.max_seq_len)
        counts = [tokens.shape[1]] * self.batch if step.counts is None else step.counts.tolist()
        for places in self.groups:
            places.begin(counts)
        if step.counts is not None:
            self._varlen_ends = self.seq_lens + step.counts
        self.view.begin(step, self)
        return step

    def begin_apart(self, num_tokens: int) -> tuple[Cache, ContextPart] | None:
        part = None if self.seq_len else self.view.begin_apart(self.batch, num_tokens)
        if part is None:
            return None
        cache = copy(self)
        cache.view, cache.cu_seqlens = part, None
        return cache, part

    def next_position(self, seq_lens: Any) -> Any:
        return self.view.next_position(seq_lens)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        return self._attend(layer, QKV(q, k, v))

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        return self._attend(layer, QKV(q, k, v, rope))

    def _attend(self, layer: int, new: QKV) -> Tensor:
        past = self._past(layer, new.k.shape[2])
        return self.view.attend(layer, self.memories[layer], self.rules[layer], past, new)

    def _past(self, layer: int, num_tokens: int) -> Past:
        """The layer's slots with the new tokens, of each sequence or, if the batch is varlen, of all; there is room."""
        places, index = self._where[layer]
        ends = self._ends(places, num_tokens)
        places.reserve(index, int(ends.max()))
        return Past(places.block_table, ends, self.cu_seqlens)

    def _ends(self, places: Places[KVStorage], num_tokens: int) -> np.ndarray:
        """[B]: slots in use with the new tokens"""
        ends = self.view.num_slots(self._new_lens(num_tokens))
        return ends if places.dropped is None else ends - places.dropped

    def _new_lens(self, num_tokens: int) -> np.ndarray:
        """[B]: lengths after the forward pass"""
        if self.cu_seqlens is not None:
            return self._varlen_ends
        seq_len = self.seq_len + num_tokens
        if self._equal_ends[0] != seq_len:
            self._equal_ends = np.full(self.batch, seq_len)
        return self._equal_ends

    def has_kernel_view(self, num_tokens: int) -> bool:
        is_read = self._in_stores if self.latents is None else self.latents.in_kernels
        return is_read and self.view.in_kernels and len(self.groups) == 1 and self.places.at_once

    def kernel_view(self, num_tokens: int) -> KernelView:
        places, ends = self.places, self._ends(self.places, num_tokens)
        # A varlen batch brings no sequence more tokens than all together. Pages that drop tokens may have shrunk.
        if self.seq_len + num_tokens > self._room or places.dropped is not None:
            longest = int(ends.max())
            for index in range(len(places.memories)):
                places.reserve(index, longest)
            self._room = places.num_slots
        if self.latents is None:
            return KernelView(self._stores, places.tables, ends, sinks=self.view.sink_angles(0))
        rows = [storage.rows_of_kernels() for storage in self._rows]
        return KernelView(rows, *each_token(places.block_table, ends, num_tokens, self.cu_seqlens))

    def latent_spans(self, layer: int, num_tokens: int) -> list[Span]:
        return spans_of(self._ends(self._where[layer][0], num_tokens), num_tokens, self.cu_seqlens)

    def latent_view(self, layer: int, num_tokens: int) -> StoredLatents:
        past = self._past(layer, num_tokens)
        spans = spans_of(past.ends, num_tokens, self.cu_seqlens)
        return StoredLatents(
            present(self.latents),
            self.rules[layer],
            spans,
            self._rows[layer],
            past.block_table,
            lambda: each_token(past.block_table, past.ends, num_tokens, self.cu_seqlens),
        )

    def has_layer_views(self, num_tokens: int) -> bool:
        return self._in_stores and self.view.in_kernels

    def layer_view(self, layer: int, num_tokens: int) -> LayerView:
        past = self._past(layer, num_tokens)
        return LayerView(self._stores[layer], past.block_table, past.ends, sinks=self.view.sink_angles(layer))

    def move(self, device: torch.device) -> None:
        for storage in self.memories:
            storage.move(device)

    def advance(self, num_tokens: int | np.ndarray) -> None:
        super().advance(num_tokens)
        for places in self.groups:
            places.advance(self.seq_lens)

    @property
    def tier_reads(self) -> TierReads | None:
        return None if self.places.tally is None else self.places.tally.reads

    @property
    def peak_bytes(self) -> int | None:
        if all(places.peak_bytes is None for places in self.groups):
            return None
        return sum(places.peak_bytes or places.size_bytes for places in self.groups)

    def mark(self) -> None:
        for places in self.groups:
            places.mark(self.seq_lens)

    def truncate(self, seq_len: int | np.ndarray) -> None:
        wanted = np.minimum(self.seq_lens, seq_len)
        for places in self.groups:
            places.check_truncate(wanted)  # all, before any forgets
        before, self._room = self.seq_lens, 0
        super().truncate(seq_len)
        for places in self.groups:
            places.truncate(before, wanted)


def pooled_cache(
    pool: PagePool, sequences: Sequence[PagedSequence], view: View = ALL_TOKENS, places: PoolPages | None = None
) -> KVCache:
    """A cache for one or more forward passes; cheap to make, so that each may have one.

    places   of the sequences; None: those that keep their tokens in place
    """
    places = PoolPages(pool, sequences) if places is None else places
    cache = KVCache(pool.config, places, mode=pool.mode, view=view)
    cache.seq_lens = places.seq_lens
    return cache
