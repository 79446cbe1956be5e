"""`DevicePolicyCache`: keys and values on a device of the tokens that a policy keeps."""

import sys

import numpy as np
from torch import Tensor

from gpu_kernels.attention.paged import PagedCache
from gpu_kernels.attention.paged_decode import Operands as PagedDecode
from gpu_kernels.attention.paged_decode import paged_decode
from gpu_kernels.attention.paged_prefill import Operands as PagedPrefill
from gpu_kernels.attention.paged_prefill import paged_prefill
from gpu_kernels.decode.pages import Attend, Rotation, write_new
from qbench.policies import CachePolicy, Observe
from qbench.policies.positions import Full, Window
from qbench.runtime.caches.evicting import EvictingSequences
from qbench.runtime.caches.evictor import Evictor
from qbench.runtime.caches.growth import in_blocks, policies_of_layers, sizes_after
from qbench.runtime.caches.model_policy import window_rules
from qbench.runtime.caches.places import OwnPages
from qbench.runtime.caches.sequences import check_seq_len
from qbench.runtime.caches.slot_table import SlotTable
from qbench.runtime.device.cache import DeviceCache
from qbench.runtime.device.place import Place
from qbench.runtime.device.storage import PAGE_SIZE, DeviceStorage, page_slots
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
        memories = [DeviceStorage(self.pages, layer, batch, place) for layer in range(config.num_layers)]
        policy = policy.for_model(config.num_layers, sum(memory.bytes_per_token for memory in memories))
        self.memories = memories
        tables = [SlotTable(config.num_layers, config.num_kv_heads) for _ in range(batch)]
        self.evictor = Evictor(config, OwnPages(memories, sys.maxsize, is_tight=True), policy, tables)
        # A window holds in the forward pass too: more tokens are stored than a query sees until they are cut.
        rules = [config.attention_rule(layer) for layer in range(config.num_layers)]
        if isinstance(policy, Window):
            rules = window_rules(config, policy.tokens)
        self._windows = [rule.window or None for rule in rules]

    def reserve(self, seq_len: int) -> None:
        check_seq_len(seq_len, self.max_seq_len)

    def attend(self, rotation: Rotation, rows: dict[str, Tensor], cu_seqlens: np.ndarray) -> Attend:
        bounds = self.place.send(cu_seqlens.astype(np.int32))

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            ends, holes = self.evictor.rooms(layer)
            slots = self.place.send(self._slots(ends, holes))
            turned = write_new(self.pages, rotation, rows | {"slot": slots}, layer, query, key, value)
            cache = self.memories[layer].paged(self.place.send(ends.astype(np.int32)))
            out, mass = self._attended(turned, cache, bounds, rotation, layer)
            self._settle(layer, mass, ends, query, cu_seqlens)
            return out

        return attend

    def _slots(self, ends: np.ndarray, holes: np.ndarray | None) -> np.ndarray:
        """[T], or [T, G] if the only new token of each sequence takes another slot in each head"""
        if holes is not None:
            return page_slots(holes, np.arange(self.batch)[:, None], self.batch)
        counts = self.evictor.counts
        sequence = np.repeat(np.arange(self.batch), counts)
        firsts = np.cumsum(counts) - counts
        slots = np.arange(len(sequence)) - (firsts + counts - ends)[sequence]
        return page_slots(slots, sequence, self.batch)

    def _attended(
        self, query: Tensor, cache: PagedCache, bounds: Tensor, rotation: Rotation, layer: int
    ) -> tuple[Tensor, Tensor | None]:
        """Output [T, H, D], and the weights [B, G, S] that the policy observes."""
        most = int(self.evictor.counts.max())
        how = {
            "window": self._windows[layer],
            "softmax_scale": rotation.softmax_scale,
            "mass_queries": _observed(self.evictor.policies[layer].observes, most),
        }
        if self.evictor.decodes:
            out, _, mass = paged_decode(PagedDecode(query[:, None], cache, **how))
            return out[:, 0], mass
        out, _, mass = paged_prefill(PagedPrefill(query, cache, cu_queries=bounds, most_queries=most, **how))
        return out, mass

    def _settle(self, layer: int, mass: Tensor | None, ends: np.ndarray, query: Tensor, cu_seqlens: np.ndarray) -> None:
        weights = None if mass is None else mass.cpu()
        reads_queries = self.evictor.policies[layer].reads_queries
        unrotated = query.float().cpu().transpose(0, 1)[None] if reads_queries else None  # [1, H, T, D]
        for b in range(self.batch):
            self.evictor.settle(
                slice(layer, layer + 1),
                b,
                None if weights is None else weights[b : b + 1, :, : int(ends[b])],
                None if unrotated is None else unrotated[:, :, cu_seqlens[b] : cu_seqlens[b + 1]],
            )


def slots_of_layers(
    policy: CachePolicy, config: ModelConfig, bytes_per_token: float, context: int, steps: int
) -> list[float]:
    """Slots of the pages of each layer, after `context` tokens of which the last `steps` came one at a time.

    bytes_per_token  over all layers
    """
    policy = policy.for_model(config.num_layers, bytes_per_token)
    if isinstance(policy, Full):
        return [float(in_blocks(context, PAGE_SIZE))] * config.num_layers
    return sizes_after(policies_of_layers(config, policy), context - steps, steps, config.num_kv_heads, PAGE_SIZE)


def _observed(observe: Observe | None, num_queries: int) -> int | None:
    """Queries of a sequence whose weights count; None: the policy observes no query"""
    return None if observe is None else min(observe.queries or num_queries, num_queries)
