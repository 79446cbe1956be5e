"""A small pool of real pages, and the caches of an engine over it."""

import numpy as np
from support.architectures import small_config

from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.caches.pooled_caches import PooledCaches
from quant.models import ModelConfig


def small_pool(num_pages: int, page_size: int = 16) -> PagePool:
    return PagePool(ModelConfig.from_hf(small_config()), None, num_pages, page_size)


def small_caches(num_pages: int, page_size: int = 16) -> PooledCaches:
    """Pooled caches of policy full."""
    pool = small_pool(num_pages, page_size)
    return PooledCaches(CacheMaker(pool.config, None, "auto"), pool, 256)


def shuffled(pool: PagePool) -> PagePool:
    """The pool, whose free pages are now in no order."""
    held = [pool.allocate() for _ in range(pool.num_pages)]
    for page in np.random.default_rng(pool.num_pages).permutation(pool.num_pages):
        pool.release(held[page])
    return pool
