"""Latent attention whose absorbed mode is one call of cpu_kernels between its projections."""

import importlib
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.attention.mla_modes import MODES, MlaMode, choose_mode
from qbench.runtime.caches.latent_cache import LatentCache, LatentRows, Span
from qbench.runtime.layers.fused import as_rows
from qbench.runtime.layers.latent import LatentAttention
from qbench.runtime.layers.latent_heads import F16_MAX, LatentHeads, heads_format
from qbench.runtime.layers.norm import Norm


class KernelLatentAttention(LatentAttention):
    """The mode "elided" of all sequences that take it is one call, over a cache of the kernels' own rows."""

    def _over_latents(self, x: Tensor, norm: Norm, rope: tuple[Tensor, Tensor], cache: LatentRows) -> Tensor:
        spans = cache.spans(x.shape[1])
        few = [span for span in spans if self.mode(cache, span) is MODES["elided"]]
        if not few or not isinstance(cache, LatentCache) or not cache.in_kernels:
            return super()._over_latents(x, norm, rope, cache)
        q, latent = self._project(x, norm)
        if len(few) == len(spans):
            out = self._step(q, latent, rope, cache, slice(None))
        else:  # a varlen batch, [1, N]
            columns = np.concatenate([np.arange(span.new.start, span.new.stop) for span in few])
            out = x.new_empty(1, x.shape[1], self.num_heads * self.sizes.v_head_dim)
            turns = (rope[0][columns], rope[1][columns])
            out[:, columns] = self._step(q[:, columns], latent[:, columns], turns, cache, columns)
            for span in (span for span in spans if span not in few):
                turns = (rope[0][span.new], rope[1][span.new])
                out[:, span.new] = self._of_span(q[:, span.new], latent[:, span.new], turns, cache, span)
        (y,) = self.output(out, residual=x)
        return y

    def _fastest(self, cache: LatentCache, span: Span) -> MlaMode:
        if not cache.in_kernels:
            return super()._fastest(cache, span)
        return choose_mode(self.sizes, self.num_heads, span.seq_len, span.count, cache.rules[self.layer].window)

    def _step(
        self,
        q: Tensor,
        latent: Tensor,
        rope: tuple[Tensor, Tensor],
        cache: LatentCache,
        columns: slice | np.ndarray,
    ) -> Tensor:
        """These tokens of the forward pass, of which `columns` are theirs: -> [B, T, H V]"""
        batch, num_tokens = q.shape[:2]
        past = (cache.format.name, cache.rows(self.layer), cache.block_table[columns], cache.ends[columns])
        norm, turns = (self.kv_norm.array, self.kv_norm.eps), self.angles(rope, batch)
        rule = (self.score_scale(cache), cache.rules[self.layer].window)
        y = self.packed.attend(as_rows(q), as_rows(latent), *norm, *turns, *past, *rule)
        return torch.from_numpy(y).view(batch, num_tokens, -1)

    def angles(self, rope: tuple[Tensor, Tensor], batch: int) -> list[np.ndarray]:
        """cos and sin [T, D] as cpu_kernels take them: of every token of the forward pass, [B T, D]"""
        return [angles.repeat(batch, 1).numpy() if batch > 1 else angles.numpy() for angles in rope]

    def score_scale(self, cache: LatentCache) -> float:
        return cache.rules[self.layer].scale * self.softmax_scale

    def pack(self) -> int:
        return self.packed.nbytes

    @cached_property
    def packed(self) -> Any:
        """cpu_kernels' MlaHeads"""
        heads = LatentHeads(self.kv_up, self.sizes, self.num_heads)
        name = heads_format(self.kv_up.formats[0], self.output.formats[0], self.impl)
        if name in ("f16", "int8") and not max(heads.keys.abs().max(), heads.values.abs().max()) <= F16_MAX:
            name = "f32"  # NaN among them, too
        kernels = importlib.import_module("cpu_kernels")
        return kernels.MlaHeads(heads.keys.numpy(), heads.values.numpy(), name)
