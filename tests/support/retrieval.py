"""Checks that hold for every policy that reads chosen blocks, and the inputs that their tests feed to caches."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.caches import assert_a_batch_is_its_sequences

from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.caches.plan import CachePlan
from qbench.runtime.caches.policy.retrieval_cache import RetrievalCache
from quant.kv import KV_FORMATS, KVScheme
from quant.models import ModelConfig

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], Any]


def config_of(family: str = "llama", **changes) -> ModelConfig:
    return ModelConfig.of(ArraySource(small_config(family, max_position_embeddings=2048, **changes), {}))


def heads(config: ModelConfig, total: int, batch: int = 1, *, seed: int) -> list[torch.Tensor]:
    """Queries [B, H, T, D], keys and values [B, G, T, D]"""
    make = torch.Generator().manual_seed(seed)
    counts = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
    return [torch.randn(batch, count, total, config.head_dim, generator=make) for count in counts]


def heads_of_equal_keys(config: ModelConfig, total: int, key: float, *, seed: int) -> list[torch.Tensor]:
    """As `heads`, if all keys are `key` and a value is its position: attention is the mean of the positions read."""
    q, k, v = heads(config, total, seed=seed)
    k[:] = key
    v[:] = torch.arange(float(total))[:, None]
    return [q, k, v]


def scheme_of(kv: str | None) -> KVScheme | None:
    return None if kv is None else KVScheme(KV_FORMATS[kv])


def assert_it_reads_all(family: str, policy: str, impl: str, parts: Sequence[int]) -> None:
    """The logits are those of the full cache, bit by bit.

    parts   number of tokens of each forward pass
    """
    config = small_config(family, head_dim=32, max_position_embeddings=2048)
    source = ArraySource(config, random_weights(config))
    model, full = (load_model(source, RunOptions(policy=one), impl=impl) for one in (policy, "full"))
    tokens = torch.randint(150, (1, sum(parts)), generator=torch.Generator().manual_seed(3))
    one, other = model.new_cache(), full.new_cache()
    for part in tokens.split(list(parts), 1):
        assert torch.equal(model(part, one), full(part, other))


def assert_a_batch_of_unlike_lengths(policy: str, impl: str) -> None:
    """Each sequence gets the logits that it gets alone."""
    config = small_config("llama", head_dim=32, max_position_embeddings=2048)
    model = load_model(ArraySource(config, random_weights(config)), RunOptions(policy=policy), impl=impl)
    tokens = torch.randint(150, (3, 260), generator=torch.Generator().manual_seed(2))
    assert_a_batch_is_its_sequences(model, tokens, ([200, 90, 25], [1, 1, 1], [1, 1, 1], [5, 9, 40], [1, 1, 1]))


def assert_planned_bytes_are_held(cache: RetrievalCache, memory: CachePlan, attend: Attend) -> tuple[int, int]:
    """Fill a cache with 160 tokens of two sequences, and compare its bytes with those that were planned.

    attend   called with (layer, q, k, v)
    returns  bytes of the indices, and those among them that blocks use
    """
    cache.begin(torch.zeros(2, 160, dtype=torch.int64))
    q, k, v = heads(memory.config, 160, batch=2, seed=3)
    for layer in range(memory.config.num_layers):
        attend(layer, q, k, v)
    room = sum(index.size_bytes for its in cache.indices for index in its)
    used = sum(index.block_bytes * index.num_blocks for its in cache.indices for index in its)
    assert memory.size_bytes(160, 2) == cache.size_bytes - room + used
    return room, used
