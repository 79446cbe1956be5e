"""All layers of a dense model as one call of cpu_kernels: no Python between its products."""

import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from qbench.runtime.attention.rotations import Rotation
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.step import Step
from qbench.runtime.layers.attention import KernelAttention
from qbench.runtime.layers.block import Block
from qbench.runtime.layers.feed_forward import KernelFeedForward
from qbench.runtime.layers.fused import as_rows
from quant.present import present


class KernelLayers:
    """The blocks of a dense model; the bits are those of one block after another, see `paths.Runner` for the call.

    The exception is f16 with last_only: few tokens are multiplied exactly and many in bfloat16, and the last layer
    computes the net for the last tokens alone.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        kernels = importlib.import_module("cpu_kernels")
        self._run = kernels.run_layers
        self._layers = [kernels.DecoderLayer(*_parts(block)) for block in blocks]
        self._blocks = blocks
        self._add_ranks = blocks[0].attention.output.add_ranks
        self._comes_and_goes = any(block.before is not None for block in blocks)

    def __call__(self, x: Tensor, rotations: Sequence[Rotation], step: Step, cache: Cache, last_only: bool) -> Tensor:
        view = cache.kernel_view(x.shape[1])
        rule = cache.rules[0]
        past = (view.block_table, view.ends, rule.scale, rule.window)
        policy = {"slots": view.slots, "mass": view.mass} if view.slots is not None or view.mass is not None else {}
        if view.sinks is None:
            cos, sin = present(rotations[0])
            angles = (cos.numpy(), sin.numpy())
        else:
            angles = view.sinks.near
            policy |= view.sinks.arguments
        if view.choices is not None:
            policy |= {"choices": view.choices, "on_choice": view.on_choice, "smoothing": view.smoothing}
            policy |= {"chosen": view.chosen, "tier": view.tier}
        if self._comes_and_goes:
            policy["before_layer"] = self._enter
        if self._add_ranks is not None:
            policy["add_ranks"] = self._add_ranks
        y = self._run(self._layers, view.stores, as_rows(x), *angles, *past, last_only, cache.cu_seqlens, **policy)
        view.settle()
        return torch.from_numpy(y.reshape(x.shape[0], -1, y.shape[1]))

    def _enter(self, layer: int) -> None:
        present(self._blocks[layer].before)()


def kernel_layers(blocks: Sequence[Block]) -> KernelLayers | None:
    """The blocks as one call, or None unless cpu_kernels have packed both halves of each."""
    is_packed = all(_is_dense(block) and None not in _groups(block) for block in blocks)
    return KernelLayers(blocks) if is_packed else None


def _is_dense(block: Block) -> bool:
    return isinstance(block.attention, KernelAttention) and isinstance(block.feed_forward, KernelFeedForward)


def _groups(block: Block) -> list[Any]:
    attention, net = block.attention, block.feed_forward
    return [linears.chained for linears in (attention.qkv, attention.output, net.gate_up, net.down)]


def _parts(block: Block) -> tuple[Any, ...]:
    attention = block.attention
    norms = (block.attention_norm.array, block.feed_forward_norm.array, block.attention_norm.eps)
    return *_groups(block), *norms, attention.head_dim, *attention.head_norms
