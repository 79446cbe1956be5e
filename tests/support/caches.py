"""Caches of a config alone, without a model: in torch, or in stores of cpu_kernels."""

import sys
from collections.abc import Sequence
from typing import Any

from qbench.cache_spec import DEFAULT_CACHE
from qbench.policies import parse_policy
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.kernel_storage import KernelStorage
from qbench.runtime.caches.kv_storage import KVStorage
from qbench.runtime.caches.places import OwnPages
from qbench.runtime.caches.policy_cache import PolicyCache
from qbench.runtime.caches.storages import make_storage
from quant.kv import KVScheme
from quant.models import ModelConfig


def torch_cache(config: ModelConfig, scheme: KVScheme | None = None, batch: int = 1, capacity: int = 256) -> Any:
    """Keys and values of every head, those of latent attention too."""
    mode = "decompressed" if config.mla else None
    return CacheMaker(config, scheme, "reference").new(DEFAULT_CACHE, batch, capacity, mode)


def kernel_cache(config: ModelConfig, scheme: KVScheme | None = None, batch: int = 1, capacity: int = 256) -> Any:
    return CacheMaker(config, scheme, "auto").new(DEFAULT_CACHE, batch, capacity)


def policy_cache(
    config: ModelConfig,
    policy: str,
    batch: int = 1,
    *,
    in_kernels: bool = False,
    storages: Sequence[KVStorage] | None = None,
) -> PolicyCache:
    """In float32; a token counts as one byte.

    storages   one per layer; None: made here
    """
    if storages is None:
        layers = range(config.num_layers)
        storages = [make_storage(config, None, layer, batch, 16, in_kernels=in_kernels) for layer in layers]
    places = OwnPages(storages, sys.maxsize, is_tight=True)
    return PolicyCache(config, places, parse_policy(policy).for_model(config.num_layers, 1.0))


def is_in_torch(cache: Any) -> bool:
    """Whether a cache's keys and values are tensors of torch."""
    return not any(isinstance(storage, KernelStorage) for storage in cache.memories)
