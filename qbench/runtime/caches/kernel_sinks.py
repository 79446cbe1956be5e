"""KernelSinkCache: a window and sinks over cpu_kernels' stores."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.attention.rope import far_rotation, inverse_frequencies, rotate
from qbench.runtime.caches.kernel_cache import has_store
from qbench.runtime.caches.page_memory import StorePages
from qbench.runtime.caches.pages import PagedSequence, PagePool
from qbench.runtime.caches.sink_cache import SinkCache
from qbench.runtime.caches.step import Step
from quant.kv import KVScheme
from quant.models import ModelConfig


def has_kernel_sinks(config: ModelConfig, scheme: KVScheme | None) -> bool:
    """Whether the kernels attend to sinks of this model: not where keys turn otherwise once the text is long."""
    ropes = [rope for rope in (config.rope, config.local_rope) if rope is not None]
    return has_store(config, scheme) and all(rope.changes_at is None for rope in ropes)


class KernelSinkCache(SinkCache):
    """SinkCache whose keys are turned as they come, by their place in the text.

    What is near is as far from a query in the text as in the cache, so that a key once turned serves all queries that
    see it in their window. Sinks stay at the beginning, and a query meets them turned by its place in the cache.
    """

    def __init__(self, pool: PagePool, sequences: Sequence[PagedSequence], window: int, num_sinks: int) -> None:
        super().__init__(pool, sequences, window, num_sinks)
        assert isinstance(pool.memory, StorePages)
        self._stores = pool.memory.stores
        config = pool.config
        ropes = [config.rope, config.local_rope] if config.local_rope else [config.rope]
        self._frequencies = [(inverse_frequencies(rope, config.rope_dim), rope.rotation_scale) for rope in ropes]

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        self._table = self.table()
        self._ends = self.seq_lens + (tokens.shape[1] if step.counts is None else step.counts)
        moved = self.seq_lens - self.next_position(self.seq_lens)  # [B]: how much later in the text than in the cache
        moved = int(moved[0]) if step.counts is None else torch.from_numpy(np.repeat(moved, step.counts))
        places = step.positions + moved
        self._near = self._angles(places)
        self._far = self._angles(places.clamp(max=self.most_before))
        return step

    def _angles(self, places: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Of each rope of the model."""
        return [far_rotation(frequency, places, scale) for frequency, scale in self._frequencies]

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        store, rule = self._stores[layer], self.rules[layer]
        angles, past = self._near[self._rope_of[layer]], (self._table, self._ends)
        store.append(rotate(k, *angles).numpy(), v.numpy(), *past, self.cu_seqlens)
        near, far = rotate(q, *angles).numpy(), rotate(q, *self._far[self._rope_of[layer]]).numpy()
        batch, num_heads, num_tokens, head_dim = q.shape
        out = q.new_empty(batch, num_tokens, num_heads, head_dim).transpose(1, 2)
        sinks = {"sinks": self.num_sinks, "sink_q": far}
        store.attend(near, *past, out.numpy(), rule.scale, rule.window, self.cu_seqlens, **sinks)
        return out
