"""`PolicyCache`: keys and values of the tokens that a policy keeps."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from qbench.policies import CachePolicy, Observe
from qbench.runtime.attention.rope import rotate
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.places.places import Places
from qbench.runtime.caches.places.slot_table import SlotTable
from qbench.runtime.caches.policy.evicting import EvictingSequences
from qbench.runtime.caches.policy.evictor import Evictor, slot_table
from qbench.runtime.caches.storage.kv_storage import KVStorage
from qbench.runtime.caches.view.kernel_view import KernelView, LayerView
from qbench.runtime.caches.view.latent_view import Span, StoredLatents, each_token, spans_of
from quant.models import ModelConfig
from quant.present import present


class PolicyCache(EvictingSequences, KVCache):
    """The policy says after each forward pass of a layer which tokens of each sequence stay.

    Keys keep the rotation of their place in the text, those in rows of latents too, so that no token that moves is
    rotated again. Latents are one KV head: all heads keep the same tokens. Policies that read keys then see those that
    each head makes of the latents. A layer evicts before the next layer runs, so that only one layer holds a whole
    prompt, unless layers run in one call. The results of a sequence do not depend on the others.

    tables   one per sequence; None: of sequences without a token
    mode     of latent attention, as `Latents.mode`
    raises   InputError if the attention of the model depends on distances that eviction changes
    """

    def __init__(
        self,
        config: ModelConfig,
        places: Places[KVStorage],
        policy: CachePolicy,
        tables: Sequence[SlotTable] | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(config, places, mode=mode)
        self.policy = policy
        if tables is None:
            tables = [slot_table(config, self.memories) for _ in range(self.batch)]
        self.evictor = Evictor(config, places, policy, tables)
        self._unrotated: Tensor | None = None
        # In one call all layers attend by one rule, so that the first one's policy is everyone's.
        self._observe = self.evictor.policies[0].observes
        self._heads_per_kv = config.num_heads // self.evictor.num_groups

    @property
    def tables(self) -> list[SlotTable]:
        return self.evictor.tables

    @property
    def num_held(self) -> np.ndarray:
        """[layers, B] int64: tokens that are held"""
        return np.stack([table.num_held for table in self.tables], axis=1)

    # ---- layer by layer, from Python

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        self._unrotated = q
        return self.attend(layer, rotate(q, *rope), rotate(k, *rope), v, positions)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        unrotated = q if self._unrotated is None else self._unrotated
        self._unrotated = None
        if self.cu_seqlens is None:
            parts = [self._of_sequence(layer, b, *(x[b : b + 1] for x in (q, k, v, unrotated))) for b in range(len(q))]
            return torch.cat(parts) if len(parts) > 1 else parts[0]
        spans = enumerate(pairwise(self.cu_seqlens.tolist()))
        new = [(b, slice(start, end)) for b, (start, end) in spans]
        return torch.cat([self._of_sequence(layer, b, *(x[:, :, s] for x in (q, k, v, unrotated))) for b, s in new], 2)

    def _of_sequence(self, layer: int, b: int, q: Tensor, k: Tensor, v: Tensor, unrotated: Tensor) -> Tensor:
        """`attend` of one sequence."""
        storage, policy = self.memories[layer], self.evictor.policies[layer]
        layers = slice(layer, layer + 1)
        total, holes = self.evictor.make_room(layers, b)
        past = self.evictor.past_of(b, total)
        storage.append(k, v, past, holes)
        out, weights = storage.attend(q, past, self.rules[layer], policy.observes)
        self.evictor.settle(layers, b, weights, unrotated if policy.reads_queries else None)
        storage.finish(past)
        return out

    # ---- in calls of cpu_kernels

    def has_kernel_view(self, num_tokens: int) -> bool:
        one_size = len({storage.page_size for storage in self.memories}) == 1  # as the call wants it
        if self.places.is_tight:  # and layers grow together, with no room to spare
            one_size &= all(table.is_uniform for table in self.tables)
        if self.latents is not None:
            return self.latents.in_kernels and self.evictor.decodes
        return self._in_stores and self.evictor.decodes and one_size

    def kernel_view(self, num_tokens: int) -> KernelView:
        num_layers, batch, evictor = len(self.memories), self.batch, self.evictor
        groups = [evictor.together(b) for b in range(batch)]
        slots = evictor.rooms_of_all(groups)
        ends = np.stack([table.held for table in self.tables], axis=1)  # [L, B]
        observes = self.evictor.policies[0].observes_decode
        mass = None if not observes else torch.empty(num_layers, batch, evictor.num_groups, int(ends.max()))

        def settle() -> None:
            for b, its in enumerate(groups):
                for layers in its:
                    total = int(ends[layers.start, b])
                    weights = None if mass is None else self._weights(self._observe, mass[layers, b, :, :total])
                    evictor.settle(layers, b, weights, None)

        return KernelView(
            self._stores or [storage.rows_of_kernels() for storage in self._rows],
            self.places.block_table,
            ends,
            slots,
            None if mass is None else list(mass.numpy()),
            settle,
        )

    def _weights(self, observe: Observe | None, mass: Tensor) -> Tensor | Iterator[Tensor]:
        """[l, G, S] that cpu_kernels filled -> weights as policies take them, of each query if there is only one"""
        each = observe is not None and observe.each
        # The weights of each query are averaged over the heads of a group.
        return iter([mass[:, :, None] / self._heads_per_kv]) if each else mass

    def has_layer_views(self, num_tokens: int) -> bool:
        if not self._in_stores:
            return False
        return self.evictor.decodes or not self.evictor.reads_each_query

    def layer_view(self, layer: int, num_tokens: int) -> LayerView:
        layers, evictor = slice(layer, layer + 1), self.evictor
        ends, slots = evictor.rooms(layer)
        heads, observe = evictor.num_groups, evictor.policies[layer].observes
        mass = None if observe is None else torch.empty(self.batch, heads, int(ends.max()))

        def settle() -> None:
            for b in range(self.batch):
                weights = None if mass is None else self._weights(observe, mass[b : b + 1, :, : int(ends[b])])
                evictor.settle(layers, b, weights, None)

        return LayerView(
            self._stores[layer],
            self.places.block_table,
            ends,
            slots,
            None if mass is None else mass.numpy(),
            0 if observe is None else observe.queries or 0,
            settle,
        )

    # ---- over latents

    def latent_spans(self, layer: int, num_tokens: int) -> list[Span]:
        held = np.array([table.num_held[layer] for table in self.tables])
        return spans_of(held + self.evictor.counts, num_tokens, self.cu_seqlens)

    def latent_view(self, layer: int, num_tokens: int) -> StoredLatents:
        evictor, policy = self.evictor, self.evictor.policies[layer]
        ends, slots = evictor.rooms(layer)
        table = self.places.block_table

        def settle(b: int, weights: Tensor | Iterator[Tensor] | None, queries: Tensor | None) -> None:
            evictor.settle(slice(layer, layer + 1), b, weights, queries)

        return StoredLatents(
            present(self.latents),
            self.rules[layer],
            spans_of(ends, num_tokens, self.cu_seqlens),
            self._rows[layer],
            table,
            lambda: each_token(table, ends, num_tokens, self.cu_seqlens),
            None if slots is None else slots[:, 0],
            policy.observes,
            settle,
            reads_queries=policy.reads_queries,
        )
