"""All layers of a dense model as one call of cpu_kernels: no Python between its products."""

import importlib
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from qbench.runtime.attention import KernelAttention
from qbench.runtime.block import Block
from qbench.runtime.feed_forward import KernelFeedForward
from qbench.runtime.fused import as_outputs, as_rows
from qbench.runtime.kernel_cache import KernelCache


class KernelLayers:
    """The blocks of a model, each an attention and a net in one call; the bits are those of one block after another.

    But for f16 with last_only: few tokens are multiplied exactly and many in bfloat16, and the last layer has fewer.

    call     x [B, T, K], cos and sin [T, D] -> [B, T, K], or with last_only [B, 1, K] of the last token, for which the
             last layer has less to do; the cache then holds the new tokens in every layer
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        kernels = importlib.import_module("cpu_kernels")
        self._run = kernels.run_layers
        self._layers = [kernels.DecoderLayer(*_parts(block)) for block in blocks]

    def __call__(
        self, x: Tensor, rope: tuple[Tensor, Tensor], num_tokens: int, cache: KernelCache, last_only: bool
    ) -> Tensor:
        stores, lengths = cache.reserve_all(num_tokens)
        angles = (rope[0].numpy(), rope[1].numpy())
        past = (cache.block_table, lengths, cache.softmax_scale)
        y = self._run(self._layers, stores, as_rows(x), *angles, *past, 0, last_only)
        return as_outputs(y, x[:, -1:] if last_only else x)


def kernel_layers(blocks: Sequence[Block]) -> KernelLayers | None:
    """The blocks as one call, or None unless each of them is two calls of cpu_kernels."""
    halves = [
        half
        for block in blocks
        for half, kind in ((block.attention, KernelAttention), (block.feed_forward, KernelFeedForward))
        if isinstance(half, kind) and half.is_one_call
    ]
    return KernelLayers(blocks) if len(halves) == 2 * len(blocks) else None


def _parts(block: Block) -> tuple[Any, ...]:
    attention, net = block.attention, block.feed_forward
    norms = (block.attention_norm.array, block.feed_forward_norm.array, block.attention_norm.eps)
    return *attention.groups, *net.groups, *norms, attention.head_dim, *attention.head_norms
