"""All layers of a model with latent attention as one call of cpu_kernels, for few tokens per sequence."""

import importlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from qbench.runtime.attention.mla_modes import MODES
from qbench.runtime.attention.rotations import Rotation
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.step import Step
from qbench.runtime.layers.block import Block
from qbench.runtime.layers.feed_forward import KernelFeedForward
from qbench.runtime.layers.fused import as_rows
from qbench.runtime.layers.latent_kernel import KernelLatentAttention
from qbench.runtime.layers.moe import ExpertFeedForward
from quant.present import present


class LatentLayers:
    """The blocks of a model; the bits are those of one block after another, see `paths.Runner` for the call."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks
        self.attention = blocks[0].attention

    def takes(self, cache: Cache, num_tokens: int) -> bool:
        """Whether absorbed attention is the mode for all sequences of the forward pass over this cache."""
        if cache.latents is None or not cache.has_kernel_view(num_tokens):
            return False
        latents, window = cache.latents, cache.rules[0].window
        spans = cache.latent_spans(0, num_tokens)
        return all(self.attention.mode(latents, span, window) is MODES["elided"] for span in spans)

    def __call__(self, x: Tensor, rotations: Sequence[Rotation], step: Step, cache: Cache, last_only: bool) -> Tensor:
        view, latents, rule = cache.kernel_view(x.shape[1]), present(cache.latents), cache.rules[0]
        new = (as_rows(x), *self.attention.angles(rotations[0], len(x)))
        past = (view.block_table, view.ends, self.attention.score_scale(rule), rule.window)
        slots = None if view.slots is None else view.slots[:, :, 0]  # of the only KV head: [layers, M]
        mass = None if view.mass is None else [its[:, 0] for its in view.mass]
        rows = (view.stores, latents.format.name)
        y = torch.from_numpy(self._run(self._layers, *rows, *new, *past, slots=slots, mass=mass)).view(x.shape)
        view.settle()
        if not last_only:
            return y
        return y[:, -1:] if cache.cu_seqlens is None else y[:, cache.cu_seqlens[1:] - 1]

    @cached_property
    def _run(self) -> Any:
        return importlib.import_module("cpu_kernels").run_mla_layers

    @cached_property
    def _layers(self) -> list[Any]:
        """cpu_kernels' MlaLayer; heads are packed when the first token wants them."""
        make = importlib.import_module("cpu_kernels").MlaLayer
        return [make(*_parts(block), **_queries(block.attention)) for block in self.blocks]


def latent_layers(blocks: Sequence[Block]) -> LatentLayers | None:
    """The blocks as one call, or None unless cpu_kernels have packed all weights of each, and they stay."""
    is_one_call = all(_is_packed(block) and block.before is None for block in blocks)
    return LatentLayers(blocks) if is_one_call else None


def _is_packed(block: Block) -> bool:
    attention, net = block.attention, block.feed_forward
    if not isinstance(attention, KernelLatentAttention):
        return False
    linears = [attention.down, attention.output, *([] if attention.q_up is None else [attention.q_up.linears])]
    is_experts = isinstance(net, ExpertFeedForward)
    is_net = net.is_packed if is_experts else isinstance(net, KernelFeedForward) and net.step is not None
    return is_net and all(its.group is not None for its in linears)


def _parts(block: Block) -> tuple[Any, ...]:
    attention, net = block.attention, block.feed_forward
    is_routed = isinstance(net, ExpertFeedForward)
    groups = (net.kernel_router, net.packed) if is_routed else net.groups
    norms = (block.attention_norm.array, attention.kv_norm.array, block.feed_forward_norm.array)
    eps = (block.attention_norm.eps, attention.kv_norm.eps)
    return attention.down.group, attention.packed, attention.output.group, *groups, *norms, *eps


def _queries(attention: KernelLatentAttention) -> dict[str, Any]:
    if attention.q_up is None:
        return {}
    return {"q_norm": attention.q_up.norm.array, "q_up": attention.q_up.linears.group}
