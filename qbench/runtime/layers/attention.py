"""Attention with keys and values of its own for every group of heads: QKV and output projections around the cache."""

import importlib
from collections.abc import Callable

from torch import Tensor

from qbench.runtime.attention.rotations import Rotation
from qbench.runtime.caches.cache import Cache
from qbench.runtime.layers.fused import FusedLinears, add_output, as_outputs, kernel_arguments
from qbench.runtime.layers.norm import Norm
from quant.models import ModelConfig


class Attention:
    """In Python, over any cache.

    q_norm, k_norm   of each head before its rotation, in architectures that have them
    output_norm      of what attention adds to the stream, in architectures that have one
    call             x [B, T, K] -> x and what attention to norm(x) adds to it; rope None: nothing is rotated
    step             the same as one call of cpu_kernels over a cache that has layer views; None if they do not run it
    """

    step: Callable[..., Tensor] | None = None

    def __init__(
        self,
        config: ModelConfig,
        layer: int,
        qkv: FusedLinears,
        output: FusedLinears,
        q_norm: Norm | None = None,
        k_norm: Norm | None = None,
        output_norm: Norm | None = None,
    ) -> None:
        self.head_dim = config.head_dim
        self.layer = layer
        self.qkv = qkv
        self.output = output
        self.q_norm = q_norm
        self.k_norm = k_norm
        self.output_norm = output_norm

    def __call__(self, x: Tensor, norm: Norm, rope: Rotation, positions: Tensor, cache: Cache) -> Tensor:
        num_tokens = len(positions)
        q, k, v = [self._heads(projected, num_tokens) for projected in self.qkv(x, norm)]
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if rope is None:
            out = cache.attend(self.layer, q, k, v, positions)  # [B, H, T, D]
        else:
            out = cache.rope_attend(self.layer, q, k, v, rope, positions)
        return self.add_output(out.transpose(1, 2).reshape(*x.shape[:-1], -1), x)  # [B T, H D] -> [B T, K]

    def add_output(self, attended: Tensor, residual: Tensor) -> Tensor:
        """attended [..., H D] -> what it adds to the residual, and the residual, [..., K]"""
        return add_output(self.output, attended, residual, self.output_norm)

    def _heads(self, x: Tensor, num_tokens: int) -> Tensor:
        return x.reshape(-1, num_tokens, x.shape[-1] // self.head_dim, self.head_dim).transpose(1, 2)  # [B, H, T, D]


class KernelAttention(Attention):
    """Attention that cpu_kernels run as one step, if they have packed its weights; the bits are those of the call."""

    def __init__(
        self,
        config: ModelConfig,
        layer: int,
        qkv: FusedLinears,
        output: FusedLinears,
        q_norm: Norm | None = None,
        k_norm: Norm | None = None,
    ) -> None:
        super().__init__(config, layer, qkv, output, q_norm, k_norm)
        self._attention_step = importlib.import_module("cpu_kernels").attention_step
        self.groups = (qkv.group, output.group)
        self.head_norms = (
            (None, None, 0.0) if q_norm is None or k_norm is None else (q_norm.array, k_norm.array, q_norm.eps)
        )
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
