"""The cache over sequences of a pool, whatever holds its pages."""

from collections.abc import Sequence

from qbench.runtime.caches.latent_kernel_cache import has_latent_kernels
from qbench.runtime.caches.page_memory import LatentPages, StorePages
from qbench.runtime.caches.paged_cache import PagedCache, PagedTorchCache
from qbench.runtime.caches.paged_latents import PagedKernelLatentCache, PagedLatentCache
from qbench.runtime.caches.pages import PagedSequence, PagePool
from quant.present import present

AnyPagedCache = PagedCache | PagedTorchCache | PagedLatentCache


def paged_cache(pool: PagePool, sequences: Sequence[PagedSequence]) -> AnyPagedCache:
    if isinstance(pool.memory, LatentPages):
        in_kernels = pool.impl != "reference" and has_latent_kernels(present(pool.config.mla))
        return (PagedKernelLatentCache if in_kernels else PagedLatentCache)(pool, sequences)
    return (PagedCache if isinstance(pool.memory, StorePages) else PagedTorchCache)(pool, sequences)
