"""Attention with keys and values of its own for every group of heads: QKV and output projections around the cache."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from qbench.runtime.attention.rope import rotate
from qbench.runtime.attention.rotations import Rotation
from qbench.runtime.caches.cache import Cache
from qbench.runtime.layers.activations import turned_online
from qbench.runtime.layers.fused import FusedLinears, add_output, as_outputs, kernel_arguments
from qbench.runtime.layers.norm import Norm
from quant.models import ModelConfig
from quant.models.online import KEYS

# Queries that share their keys: four of the usual 512-token windows, which leaves 5/8 of the square to compute.
QUERIES = 128


@dataclass(frozen=True, slots=True)
class AttentionNorms:
    """Norms around attention, in architectures that have them.

    q, k     of each head before its rotation
    output   of the sum that attention adds to the stream
    """

    q: Norm | None = None
    k: Norm | None = None
    output: Norm | None = None


class Attention:
    """In Python, over any cache.

    call             x [B, T, K] -> x plus attention to norm(x); rope None: nothing is rotated
    step             the same as one call of cpu_kernels over a cache that has layer views; None if they do not run it
    """

    step: Callable[..., Tensor] | None = None

    def __init__(
        self, config: ModelConfig, layer: int, qkv: FusedLinears, output: FusedLinears, norms: AttentionNorms
    ) -> None:
        self.head_dim = config.head_dim
        self.layer = layer
        self.qkv = qkv
        self.output = output
        self.norms = norms
        self.turned = KEYS in config.online  # queries and keys, after their rotation by positions

    def __call__(self, x: Tensor, norm: Norm, rope: Rotation, positions: Tensor, cache: Cache) -> Tensor:
        num_tokens = len(positions)
        q, k, v = [self._heads(projected, num_tokens) for projected in self.qkv(x, norm)]
        if self.norms.q is not None and self.norms.k is not None:
            q, k = self.norms.q(q), self.norms.k(k)
        if self.turned:
            q, k = (turned_online(x if rope is None else rotate(x, *rope)) for x in (q, k))
        if rope is None or self.turned:
            out = cache.attend(self.layer, q, k, v, positions)  # [B, H, T, D]
        else:
            out = cache.rope_attend(self.layer, q, k, v, rope, positions)
        return self.add_output(out.transpose(1, 2).reshape(*x.shape[:-1], -1), x)  # [B T, H D] -> [B T, K]

    def add_output(self, attended: Tensor, residual: Tensor) -> Tensor:
        """attended [..., H D] -> its projection plus the residual, [..., K]"""
        return add_output(self.output, attended, residual, self.norms.output)

    def _heads(self, x: Tensor, num_tokens: int) -> Tensor:
        return x.reshape(-1, num_tokens, x.shape[-1] // self.head_dim, self.head_dim).transpose(1, 2)  # [B, H, T, D]


class KernelAttention(Attention):
    """Attention that cpu_kernels run as one step, if they have packed its weights; the bits are those of the call."""

    def __init__(
        self, config: ModelConfig, layer: int, qkv: FusedLinears, output: FusedLinears, norms: AttentionNorms
    ) -> None:
        super().__init__(config, layer, qkv, output, norms)
        self._attention_step = importlib.import_module("cpu_kernels").attention_step
        self.groups = (qkv.group, output.group)
        q, k = norms.q, norms.k
        self.head_norms = (None, None, 0.0) if q is None or k is None else (q.array, k.array, q.eps)
        self.step = None if None in self.groups else self._in_one_call

    def _in_one_call(
        self, x: Tensor, norm: Norm, rope: tuple[Tensor, Tensor], positions: Tensor, cache: Cache
    ) -> Tensor:
        rows, norm_weight, eps, residual = kernel_arguments(x, norm, x)
        view = cache.layer_view(self.layer, len(positions))
        rule = cache.rules[self.layer]
        past = (view.block_table, view.ends, rule.scale)
        steps = (norm_weight, eps, residual, *self.head_norms, rule.window, cache.cu_seqlens)
        policy = (view.slots, view.mass, view.mass_queries)
        angles = (rope[0].numpy(), rope[1].numpy()) if view.sinks is None else view.sinks.near
        sinks = {} if view.sinks is None else view.sinks.arguments
        y = self._attention_step(*self.groups, view.store, rows, *angles, *past, *steps, *policy, **sinks)
        view.settle()
        return as_outputs(y, x)


def causal_attention_bf16(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(D)) v, every operand rounded to bfloat16; no query sees a later token.

    q        [B, H, T, D] float32
    k, v     [B, G, T, D] float32, H a multiple of G
    returns  [B, H, T, D] float32
    """
    batch, num_heads, seq_len, head_dim = q.shape
    groups = (batch * k.shape[1], num_heads // k.shape[1])
    q = (q * head_dim**-0.5).bfloat16().reshape(*groups, seq_len, head_dim)  # [B G, H/G, T, D]
    k, v = k.bfloat16().flatten(0, 1), v.bfloat16().flatten(0, 1)  # [B G, T, D]
    out = torch.empty(*groups, seq_len, v.shape[-1])
    for start in range(0, seq_len, QUERIES):
        end = min(start + QUERIES, seq_len)
        rows = q[:, :, start:end].flatten(1, 2)  # [B G, H/G t, D]
        scores = torch.bmm(rows, k[:, :end].transpose(1, 2)).unflatten(1, (groups[1], end - start))  # [B G, H/G, t, S]
        scores[..., start:].masked_fill_(torch.ones(end - start, end - start, dtype=torch.bool).triu(1), -torch.inf)
        weights = scores.softmax(-1).flatten(1, 2)
        out[:, :, start:end] = torch.bmm(weights, v[:, :end]).unflatten(1, (groups[1], end - start))
    return out.view(batch, num_heads, seq_len, -1)
