"""The cache over sequences of a pool, whatever their pages hold."""

from collections.abc import Sequence
from typing import Any

from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.latent_cache import LatentCache
from qbench.runtime.caches.pages import PagedSequence, PagePool
from qbench.runtime.caches.places import Places, PoolPages
from quant.models import ModelConfig


def pooled_cache(pool: PagePool, sequences: Sequence[PagedSequence]) -> KVCache | LatentCache:
    """A cache of every token for one or more forward passes; cheap to make, so that each may have one."""
    places = PoolPages(pool, sequences)
    cache = full_cache(pool.config, places, pool.mode)
    cache.seq_lens = places.seq_lens
    return cache


def full_cache(config: ModelConfig, places: Places[Any], mode: str | None) -> KVCache | LatentCache:
    """A cache of every token: rows of latents, or every head's keys and values.

    mode     of latent attention; None: the fastest
    """
    return KVCache(config, places) if places.memories[0].latents is None else LatentCache(config, places, mode)
