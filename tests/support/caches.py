"""Caches of a config alone, without a model: in torch, or in stores of cpu_kernels."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from support.close import assert_close
from torch import Tensor

from qbench.policies import parse_policy
from qbench.run.cache_spec import DEFAULT_CACHE
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.places.places import OwnPages
from qbench.runtime.caches.policy.policy_cache import PolicyCache
from qbench.runtime.caches.storage.kernel_storage import KernelStorage
from qbench.runtime.caches.storage.kv_storage import KVStorage
from qbench.runtime.caches.storage.storages import make_storage
from qbench.runtime.decoder_model import DecoderModel
from quant.kv import KV_FORMATS, KVScheme, calibrate_kv
from quant.models import ModelConfig
from quant.stats import KVStats


def assert_a_batch_is_its_sequences(
    model: DecoderModel, tokens: Tensor, steps: Sequence[Sequence[int]]
) -> tuple[Any, list[Any]]:
    """Pass unlike numbers of tokens per sequence together and alone; the logits are equal.

    tokens   [B, T]
    steps    per forward pass the number of tokens of each sequence
    returns  the cache of the batch, and those of the sequences
    """
    batch = len(tokens)
    together, alone, seen = model.new_cache(batch), [model.new_cache() for _ in range(batch)], [0] * batch
    for counts in steps:
        columns = torch.zeros(batch, max(counts), dtype=torch.int64)
        for b, count in enumerate(counts):
            columns[b, :count] = tokens[b, seen[b] : seen[b] + count]
        found = model(columns, together, num_valid=counts)
        for b, count in enumerate(counts):
            assert_close(found[b, :count], model(columns[b : b + 1, :count], alone[b])[0], atol=1e-4)
            seen[b] += count
    return together, alone


def torch_cache(config: ModelConfig, scheme: KVScheme | None = None, batch: int = 1, capacity: int = 256) -> Any:
    """Keys and values of every head, those of latent attention too."""
    mode = "decompressed" if config.mla else None
    return CacheMaker(config, scheme, "reference").new(DEFAULT_CACHE, batch, capacity, mode)


def kernel_cache(
    config: ModelConfig, scheme: KVScheme | None = None, batch: int = 1, capacity: int = 256, impl: str = "auto"
) -> Any:
    return CacheMaker(config, scheme, impl).new(DEFAULT_CACHE, batch, capacity)


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


def calibrated_scheme(name: str) -> KVScheme:
    """A scheme for 2 layers with 2 KV heads of 32."""
    rng = np.random.default_rng(5)
    stats = [KVStats(*(rng.uniform(2, 4, (2, 32)).astype(np.float32) for _ in range(2))) for _ in range(2)]
    return calibrate_kv(KV_FORMATS[name], stats)


def make_qkv(num_tokens: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Queries [2, 4, T, 32], keys and values [2, 2, T, 32] of that model."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(2, heads, num_tokens, 32, generator=generator) for heads in (4, 2, 2))


def random_tokens(batch: int, seq_len: int, seed: int = 0) -> torch.Tensor:
    """[batch, seq_len] ids below 150"""
    return torch.randint(150, (batch, seq_len), generator=torch.Generator().manual_seed(seed))


def feed(
    cache: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cuts: Sequence[int], layer: int = 1
) -> torch.Tensor:
    """Attention outputs of all tokens, given in runs that end at `cuts`."""
    outputs = []
    for start, end in zip([0, *cuts], [*cuts, q.shape[2]], strict=True):
        run = (x[:, :, start:end] for x in (q, k, v))
        outputs.append(cache.attend(layer, *run, torch.arange(start, end)))
        cache.advance(end - start)
    return torch.cat(outputs, dim=2)


def attended(cache: KVCache, q, k, v, passes) -> torch.Tensor:
    """Layer 0's outputs of all tokens."""
    out, start = [], 0
    for count in passes:
        some = slice(start, start + count)
        step = cache.begin(torch.zeros(len(q), count, dtype=torch.int64))
        out.append(cache.attend(0, q[:, :, some], k[:, :, some], v[:, :, some], step.positions))
        cache.advance(count)
        start += count
    return torch.cat(out, 2)
