"""All layers of a dense model as one call of cpu_kernels: no Python between its products."""

import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.kernel_cache import StoreCache
from qbench.runtime.layers.attention import KernelAttention
from qbench.runtime.layers.block import Block
from qbench.runtime.layers.feed_forward import KernelFeedForward
from qbench.runtime.layers.fused import as_rows
from quant.models import ModelConfig


class KernelLayers:
    """The blocks of a model, each an attention and a net in one call; the bits are those of one block after another.

    But for f16 with last_only: few tokens are multiplied exactly and many in bfloat16, and the last layer has fewer.

    call     x [B, T, K], cos and sin [T, D] -> [B, T, K], or with last_only [B, 1, K] of the last token, for which the
             last layer has less to do; of a ragged pass [1, N, K] -> [1, N, K] or, the last of each, [1, B, K];
             the cache then holds the new tokens in every layer
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        kernels = importlib.import_module("cpu_kernels")
        self._run = kernels.run_layers
        self._layers = [kernels.DecoderLayer(*_parts(block)) for block in blocks]

    def takes(self, cache: Cache, num_tokens: int) -> bool:
        return isinstance(cache, StoreCache)

    def __call__(
        self, x: Tensor, rope: tuple[Tensor, Tensor], num_tokens: int, cache: StoreCache, last_only: bool
    ) -> Tensor:
        stores, ends = cache.reserve_all(num_tokens)
        angles = (rope[0].numpy(), rope[1].numpy())
        rule = cache.rules[0]
        past = (cache.block_table, ends, rule.scale, rule.window)
        y = self._run(self._layers, stores, as_rows(x), *angles, *past, last_only, cache.starts)
        return torch.from_numpy(y.reshape(x.shape[0], -1, y.shape[1]))


def kernel_layers(blocks: Sequence[Block], config: ModelConfig) -> KernelLayers | None:
    """The blocks as one call, or None unless each of them is two calls of cpu_kernels, and all do it alike."""
    rules = {config.attention_rule(layer) for layer in range(config.num_layers)}
    halves = [
        half
        for block in blocks
        for half, kind in ((block.attention, KernelAttention), (block.feed_forward, KernelFeedForward))
        if isinstance(half, kind) and half.is_one_call
    ]
    is_alike = len(rules) == 1 and config.local_rope is None
    return KernelLayers(blocks) if len(halves) == 2 * len(blocks) and is_alike else None


def _parts(block: Block) -> tuple[Any, ...]:
    attention, net = block.attention, block.feed_forward
    norms = (block.attention_norm.array, block.feed_forward_norm.array, block.attention_norm.eps)
    return *attention.groups, *net.groups, *norms, attention.head_dim, *attention.head_norms
