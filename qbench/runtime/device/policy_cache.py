"""`DevicePolicyCache`: keys and values on a device of the tokens that a policy keeps."""

import sys
from collections.abc import Iterator

import numpy as np
from torch import Tensor

from gpu_kernels.attention.paged import PagedCache
from gpu_kernels.attention.paged_decode import Operands as PagedDecode
from gpu_kernels.attention.paged_decode import paged_decode
from gpu_kernels.attention.paged_prefill import Operands as PagedPrefill
from gpu_kernels.attention.paged_prefill import paged_prefill
from gpu_kernels.decode.pages import Attend, Rotation, write_new
from qbench.policies import CachePolicy, Observe
from qbench.runtime.caches.places.layered_sequence import window_rules
from qbench.runtime.caches.places.places import OwnPages
from qbench.runtime.caches.places.slot_table import SlotTable
from qbench.runtime.caches.policy.evicting import EvictingSequences
from qbench.runtime.caches.policy.evictor import Evictor
from qbench.runtime.caches.policy.growth import in_blocks, policies_of_layers, sizes_after
from qbench.runtime.caches.sequences import check_seq_len
from qbench.runtime.device.cache import DeviceCache
from qbench.runtime.device.head_storage import DeviceHeads
from qbench.runtime.device.kv import PAGE_SIZE
from qbench.runtime.device.place import Place
from qbench.runtime.device.storage import DeviceStorage, page_slots
from quant.kv import KVScheme
from quant.models import ModelConfig


class DevicePolicyCache(EvictingSequences, DeviceCache):
    """The device attends and moves kept tokens, the host decides: attention weights are copied to it after each layer.

    A layer evicts before the next layer runs, and has pages of its own, so that only one layer holds a whole prompt.
    """

    in_graph = False

    def __init__(
        self, config: ModelConfig, place: Place, batch: int, scheme: KVScheme | None, policy: CachePolicy
    ) -> None:
        super().__init__(config, place, batch, 1, scheme)
        policies = policies_of_layers(config, policy)
        memories = [self._memory(layer, by_head=each.per_head_lengths) for layer, each in enumerate(policies)]
        policy = policy.for_model(config.num_layers, sum(memory.bytes_per_token for memory in memories))
        self.memories = memories
        tables = [SlotTable(config.num_layers, config.num_kv_heads) for _ in range(batch)]
        self.evictor = Evictor(config, OwnPages(memories, sys.maxsize, is_tight=True), policy, tables)
        # A window holds in the forward pass too: more tokens are stored than a query sees until they are cut.
        self.rules = [config.attention_rule(layer) for layer in range(config.num_layers)]
        if policy.span is not None:
            self.rules = window_rules(config, policy.span.window)
        self._heads_per_kv = config.num_heads // config.num_kv_heads

    def _memory(self, layer: int, *, by_head: bool) -> DeviceStorage:
        given = (self.pages, layer, self.batch, self.place)
        return DeviceHeads(*given, self.config.num_kv_heads) if by_head else DeviceStorage(*given)

    def reserve(self, seq_len: int) -> None:
        check_seq_len(seq_len, self.max_seq_len)

    def attend(self, rotation: Rotation, rows: dict[str, Tensor], cu_seqlens: np.ndarray) -> Attend:
        bounds = self.place.send(cu_seqlens.astype(np.int32))

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            ends, holes = self.evictor.rooms(layer)
            lengths = self.memories[layer].take(ends, self.evictor.counts)
            slots = self.place.send(self._slots(lengths, holes))
            turned = write_new(self.pages, rotation, rows | {"slot": slots}, layer, query, key, value)
            cache = self.memories[layer].paged(self.place.send(lengths.astype(np.int32)))
            out, mass = self._attended(turned, cache, bounds, rotation, layer)
            mass = None if mass is None else mass.cpu()
            for b, new in enumerate(map(slice, cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist())):
                weights = self._weights(layer, b, int(ends[b]), mass, turned[new])
                reads_queries = self.evictor.policies[layer].reads_queries
                unrotated = _of_heads(query[new]) if reads_queries else None
                self.evictor.settle(slice(layer, layer + 1), b, weights, unrotated)
            return out

        return attend

    def _slots(self, lengths: np.ndarray, holes: np.ndarray | None) -> np.ndarray:
        """[T], or [T, G] if heads have lengths of their own, or the only new token of each sequence fills holes"""
        if holes is not None:
            return page_slots(holes, np.arange(self.batch)[:, None], self.batch)
        counts = self.evictor.counts
        sequence = np.repeat(np.arange(self.batch), counts)
        firsts = np.cumsum(counts) - counts
        if lengths.ndim == 2:
            slots = np.arange(len(sequence))[:, None] - ((firsts + counts)[:, None] - lengths)[sequence]
            return page_slots(slots, sequence[:, None], self.batch)
        slots = np.arange(len(sequence)) - (firsts + counts - lengths)[sequence]
        return page_slots(slots, sequence, self.batch)

    def _attended(
        self, query: Tensor, cache: PagedCache, bounds: Tensor, rotation: Rotation, layer: int
    ) -> tuple[Tensor, Tensor | None]:
        """Output [T, H, D], and the sums of weights [B, G, S] that the policy observes."""
        most, observe = int(self.evictor.counts.max()), self.evictor.policies[layer].observes
        if observe is not None and observe.each and not self.evictor.decodes:
            observe = None  # `_weights` computes those of each query
        how = {
            "window": self.rules[layer].window or None,
            "softmax_scale": rotation.softmax_scale,
            "mass_queries": _observed(observe, most),
        }
        if self.evictor.decodes:
            out, _, mass = paged_decode(PagedDecode(query[:, None], cache, **how))
            return out[:, 0], mass
        out, _, mass = paged_prefill(PagedPrefill(query, cache, cu_queries=bounds, most_queries=most, **how))
        return out, mass

    def _weights(
        self, layer: int, b: int, end: int, mass: Tensor | None, turned: Tensor
    ) -> Tensor | Iterator[Tensor] | None:
        """Weights of a sequence of `end` slots, as `CachePolicy.update` or `update_each` takes them.

        mass    [B, G, S] of all sequences, as the kernels return it
        turned  [T, H, D] rotated queries of the sequence
        """
        observe, memory = self.evictor.policies[layer].observes, self.memories[layer]
        if observe is None:
            return None
        if mass is None:
            queries = _of_heads(turned if observe.queries is None else turned[-observe.queries :])
            return memory.weights_in_slots(b, end, queries, self.rules[layer])
        found = memory.mass_in_slots(b, end, mass)
        # These are the weights of the only query, averaged over the heads of a group.
        return iter([found[:, :, None] / self._heads_per_kv]) if observe.each else found


def _of_heads(query: Tensor) -> Tensor:
    """[T, H, D] on the device -> [1, H, T, D] float32 on the host"""
    return query.float().cpu().transpose(0, 1)[None]


def slots_of_layers(
    policy: CachePolicy, config: ModelConfig, bytes_per_token: float, context: int, steps: int
) -> list[float]:
    """Slots of the pages of each layer, after `context` tokens of which the last `steps` came one at a time.

    bytes_per_token  over all layers
    """
    policy = policy.for_model(config.num_layers, bytes_per_token)
    if policy.is_full or policy.per_head_lengths:  # pages are as many as the longest head needs
        return [float(in_blocks(context, PAGE_SIZE))] * config.num_layers
    return sizes_after(policies_of_layers(config, policy), context - steps, steps, config.num_kv_heads, PAGE_SIZE)


def _observed(observe: Observe | None, num_queries: int) -> int | None:
    """Queries of a sequence whose weights count; None: the policy observes no query"""
    return None if observe is None else min(observe.queries or num_queries, num_queries)
