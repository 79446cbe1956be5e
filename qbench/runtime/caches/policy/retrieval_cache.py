"""`RetrievalCache`: every token is kept, and a query reads the blocks that a policy chooses for it."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.policies.retrieval import BlockState, ChoiceSizes, RetrievalPolicy
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.places.places import Places
from qbench.runtime.caches.policy.block_index import BlockIndex
from qbench.runtime.caches.step import ChosenPages, Past
from qbench.runtime.caches.view.kernel_view import KernelView, LayerView
from qbench.runtime.caches.view.view import QKV
from quant.models import ModelConfig


class RetrievalCache(KVCache):
    """Keys and values are in pages. Complete blocks get a summary, by which queries choose.

    A layer with a window of its own keeps that window. Forward passes in which every query reads all tokens are those
    of the full cache, bit by bit. Sequences choose by themselves, so that the results of one do not depend on others.

    tokens_read  tokens that a query of a decode step read, mean over layers, sequences and all steps so far
    """

    def __init__(self, config: ModelConfig, places: Places[Any], policy: RetrievalPolicy) -> None:
        super().__init__(config, places)
        self.policy = policy
        sizes = policy.summary_shape(config.num_kv_heads, config.head_dim)
        how = {"in_kernels": self._in_stores}
        self.indices = [[BlockIndex(*sizes, **how) for _ in range(self.batch)] for _ in self.memories]
        self._num_read = self._num_queries = 0

    @property
    def size_bytes(self) -> int:
        return super().size_bytes + sum(index.size_bytes for its in self.indices for index in its)

    @property
    def bytes_per_token(self) -> float:
        choosing = [its[0] for its, rule in zip(self.indices, self.rules, strict=True) if not rule.window]
        per_block = sum(index.block_bytes for index in choosing)
        return super().bytes_per_token + per_block / self.policy.block

    @property
    def tokens_read(self) -> float | None:
        return self._num_read / self._num_queries if self._num_queries else None

    # ---- forward passes in which every query reads all tokens

    def _reads_all(self, num_tokens: int) -> bool:
        ends = self._new_lens(num_tokens).tolist()
        return all(self.policy.reads_all(first, end) for first, end in zip(self.seq_lens.tolist(), ends, strict=True))

    def has_kernel_view(self, num_tokens: int) -> bool:
        suits = self._reads_all(num_tokens) or self._chooses_in_call(num_tokens)
        return super().has_kernel_view(num_tokens) and suits

    def _chooses_in_call(self, num_tokens: int) -> bool:
        """Whether the kernels choose the blocks of a forward pass over all layers."""
        is_one = self.batch == 1 and num_tokens == 1 and self.cu_seqlens is None
        can = self.indices[0][0].in_kernels
        return is_one and can and not any(rule.window for rule in self.rules)

    def _sizes(self) -> list[ChoiceSizes | None]:
        """Per layer, of a decode step of the only sequence"""
        indices = [its[0] for its in self.indices]
        end = self.seq_len + 1
        size = self.places.page_size
        return [self.policy.sizes(layer, end, index.num_blocks, size) for layer, index in enumerate(indices)]

    def _choices(self, sizes: list[ChoiceSizes | None]) -> list[tuple[Any, ...] | None]:
        """For the `kernel_view` of a decode step with these `_sizes`"""
        return [
            None if of_layer is None else (its[0].bits, its[0].num_blocks, *of_layer.arguments)
            for of_layer, its in zip(sizes, self.indices, strict=True)
        ]

    def kernel_view(self, num_tokens: int) -> KernelView:
        if not self._reads_all(num_tokens):
            sizes, ends = self._sizes(), self._new_lens(num_tokens)

            def settle_choices() -> None:
                for layer, of_layer in enumerate(sizes):
                    self._summarize(layer, ends)
                    self._count(layer, ends if of_layer is None else np.array([of_layer.num_read(int(ends[0]))]), None)

            return replace(super().kernel_view(num_tokens), choices=self._choices(sizes), settle=settle_choices)
        view, ends = super().kernel_view(num_tokens), self._new_lens(num_tokens)

        def settle() -> None:
            for layer in range(len(self.memories)):
                self._summarize(layer, ends)
                self._count(layer, ends, None)

        return replace(view, settle=settle)

    def has_layer_views(self, num_tokens: int) -> bool:
        return super().has_layer_views(num_tokens) and self._reads_all(num_tokens)

    def layer_view(self, layer: int, num_tokens: int) -> LayerView:
        view, ends = super().layer_view(layer, num_tokens), self._new_lens(num_tokens)

        def settle() -> None:
            self._summarize(layer, ends)
            self._count(layer, ends, None)

        return replace(view, settle=settle)

    # ---- forward passes in which queries choose

    def _attend(self, layer: int, new: QKV) -> Tensor:
        past = self._past(layer, new.k.shape[2])
        return self._read(layer, new.append(self.memories[layer], past), past)

    def _read(self, layer: int, q: Tensor, past: Past) -> Tensor:
        """Attention of the new queries; their keys and values are stored."""
        storage, rule = self.memories[layer], self.rules[layer]
        self._summarize(layer, past.ends)
        chosen = self._choose(layer, q, past)
        if not chosen:
            self._count(layer, past.ends, None)
            return storage.attend(q, past, rule)[0]
        outs = []
        for b, (one, queries) in enumerate(past.sequences(q)):
            if b in chosen:
                own = storage.attend_chosen(queries[0].transpose(0, 1)[:, :, None], chosen[b], rule)  # [T, H, 1, D]
                outs.append(own[:, :, 0].transpose(0, 1)[None])
            else:
                outs.append(storage.attend(queries, one, rule)[0])
            self._count(layer, one.ends, chosen.get(b))
        return torch.cat(outs, 0 if past.cu_seqlens is None else 2)

    def _choose(self, layer: int, q: Tensor, past: Past) -> dict[int, ChosenPages]:
        """Sequence -> the pages of its queries; those that read all tokens are left out."""
        if self.rules[layer].window:
            return {}
        found = {}
        for b, (one, queries) in enumerate(past.sequences(q)):
            first = int(one.ends[0]) - queries.shape[2]
            state = BlockState(layer, first, self.indices[layer][b])
            blocks = self.policy.select(state, queries[0])
            if blocks is not None:
                found[b] = self._pages_of(blocks.numpy(), one.block_table[0], first)
        return found

    def _pages_of(self, blocks: np.ndarray, table: np.ndarray, first: int) -> ChosenPages:
        """blocks [T, G, n] of a sequence's queries, table [pages] of it -> the pages and how many of their slots"""
        page_size = self.places.page_size
        within = (first + np.arange(len(blocks))) % page_size + 1  # slots of a query's own page that it sees
        counts = (blocks[:, 0] >= 0).sum(1)
        return ChosenPages(table[np.maximum(blocks, 0)], (counts - 1) * page_size + within)

    def _summarize(self, layer: int, ends: np.ndarray) -> None:
        """Summaries of the blocks that the new tokens have completed."""
        storage, block = self.memories[layer], self.policy.block
        if self.rules[layer].window:
            return
        for b, (index, end) in enumerate(zip(self.indices[layer], ends.tolist(), strict=True)):
            first, last = index.num_blocks, end // block
            if last > first:
                pages = block // self.places.page_size
                table = np.ascontiguousarray(self.places.block_table[b : b + 1, first * pages : last * pages])
                keys, _ = storage.read(Past(table, np.array([(last - first) * block])))
                index.append(self.policy.summarize(keys[0].unflatten(1, (last - first, block))))

    def _count(self, layer: int, ends: np.ndarray, chosen: ChosenPages | None) -> None:
        """Note how many tokens queries of decode steps read; `ends` and `chosen` of the sequences that are counted."""
        if self.cu_seqlens is not None or (self._equal_ends[0] - self.seq_len) != 1:
            return
        window = self.rules[layer].window
        seen = ends if chosen is None else chosen.ends
        self._num_read += int((np.minimum(seen, window) if window else seen).sum())
        self._num_queries += len(seen)

    def truncate(self, seq_len: int | np.ndarray) -> None:
        super().truncate(seq_len)
        for its in self.indices:
            for index, kept in zip(its, self.seq_lens.tolist(), strict=True):
                index.truncate(kept // self.policy.block)
