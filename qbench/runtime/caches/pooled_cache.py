"""The cache over sequences of a pool, whatever their pages hold."""

from collections.abc import Sequence

from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.pages import PagedSequence, PagePool
from qbench.runtime.caches.places import PoolPages
from qbench.runtime.caches.view import ALL_TOKENS, View


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
