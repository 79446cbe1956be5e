"""Attention with keys and values of its own for every group of heads: what stands before and behind the cache."""

import importlib

from torch import Tensor

from qbench.runtime.cache import Cache
from qbench.runtime.fused import FusedLinears, as_outputs, kernel_arguments
from qbench.runtime.kernel_cache import KernelCache
from qbench.runtime.norm import RMSNorm
from quant.models import ModelConfig


class Attention:
    """q_norm, k_norm: of each head before its rotation, in architectures that have them.

    call     x [B, T, K] -> x and what attention to norm(x) adds to it
    """

    def __init__(
        self,
        config: ModelConfig,
        layer: int,
        qkv: FusedLinears,
        output: FusedLinears,
        q_norm: RMSNorm | None = None,
        k_norm: RMSNorm | None = None,
    ) -> None:
        self.head_dim = config.head_dim
        self.layer = layer
        self.qkv = qkv
        self.output = output
        self.q_norm = q_norm
        self.k_norm = k_norm

    def __call__(
        self, x: Tensor, norm: RMSNorm, rope: tuple[Tensor, Tensor], positions: Tensor, cache: Cache
    ) -> Tensor:
        num_tokens = len(positions)
        q, k, v = [self._heads(projected, num_tokens) for projected in self.qkv(x, norm)]
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        out = cache.rope_attend(self.layer, q, k, v, rope, positions)  # [B, H, T, D]
        (y,) = self.output(out.transpose(1, 2).reshape(*x.shape[:-1], -1), residual=x)  # [B T, H D] -> [B T, K]
        return y

    def _heads(self, x: Tensor, num_tokens: int) -> Tensor:
        return x.reshape(-1, num_tokens, x.shape[-1] // self.head_dim, self.head_dim).transpose(1, 2)  # [B, H, T, D]


class KernelAttention(Attention):
    """The same by cpu_kernels: one call where they have packed its weights and hold the cache, else a chain of theirs.

    Both give the same bits.
    """

    def __init__(
        self,
        config: ModelConfig,
        layer: int,
        qkv: FusedLinears,
        output: FusedLinears,
        q_norm: RMSNorm | None = None,
        k_norm: RMSNorm | None = None,
    ) -> None:
        super().__init__(config, layer, qkv, output, q_norm, k_norm)
        self._attention_step = importlib.import_module("cpu_kernels").attention_step
        self.groups = (qkv.group, output.group)
        self.head_norms = (None, None, 0.0) if q_norm is None else (q_norm.array, k_norm.array, q_norm.eps)
        self.is_one_call = None not in self.groups

    def __call__(
        self, x: Tensor, norm: RMSNorm, rope: tuple[Tensor, Tensor], positions: Tensor, cache: Cache
    ) -> Tensor:
        if not self.is_one_call or not isinstance(cache, KernelCache):
            return super().__call__(x, norm, rope, positions, cache)
        rows, norm_weight, eps, residual = kernel_arguments(x, norm, x)
        store, lengths = cache.reserve(self.layer, len(positions))
        past = (cache.block_table, lengths, cache.softmax_scale)
        cos, sin = rope[0].numpy(), rope[1].numpy()
        y = self._attention_step(
            *self.groups, store, rows, cos, sin, *past, norm_weight, eps, residual, *self.head_norms
        )
        return as_outputs(y, x)
