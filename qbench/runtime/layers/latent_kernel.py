"""Latent attention whose absorbed mode is one call of cpu_kernels between its projections."""

import importlib
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.run.choices import EXACT
from qbench.runtime.attention.mla_modes import MODES, MlaMode, choose_mode
from qbench.runtime.caches.storage.latent_format import Latents
from qbench.runtime.caches.view.latent_view import LatentView, Span, StoredLatents, TokenWeights
from qbench.runtime.layers.fused import as_rows
from qbench.runtime.layers.latent import LatentAttention, columns_of
from qbench.runtime.layers.latent_heads import F16_MAX, LatentHeads, heads_format
from qbench.runtime.layers.norm import Norm
from quant.models import AttentionRule

# Tokens at once whose weights cpu_kernels write: 4 MB at 4096 slots.
OBSERVED_TOKENS = 256


class KernelLatentAttention(LatentAttention):
    """The mode "elided" of all sequences that take it is one call, over a cache of the kernels' own rows."""

    def _over_latents(self, x: Tensor, norm: Norm, rope: tuple[Tensor, Tensor], view: LatentView) -> Tensor:
        spans = view.spans
        few = [span for span in spans if self._mode(view, span) is MODES["elided"]]
        if not few or not isinstance(view, StoredLatents) or not view.latents.in_kernels:
            return super()._over_latents(x, norm, rope, view)
        q, latent = self._project(x, norm)
        if view.settles:
            parts = []
            for span in spans:
                attend = self._observed if span in few else self._of_span
                parts.append(attend(q[:, span.new], latent[:, span.new], columns_of(rope, span), view, span))
            out = torch.cat(parts, 1)
        elif len(few) == len(spans):
            out = self._step(q, latent, rope, view, slice(None))
        else:  # a varlen batch, [1, N]
            columns = np.concatenate([np.arange(span.new.start, span.new.stop) for span in few])
            out = x.new_empty(1, x.shape[1], self.num_heads * self.sizes.v_head_dim)
            turns = (rope[0][columns], rope[1][columns])
            out[:, columns] = self._step(q[:, columns], latent[:, columns], turns, view, columns)
            for span in (span for span in spans if span not in few):
                turns = (rope[0][span.new], rope[1][span.new])
                out[:, span.new] = self._of_span(q[:, span.new], latent[:, span.new], turns, view, span)
        (y,) = self.output(out, residual=x)
        return y

    def _fastest(self, latents: Latents, span: Span, window: int) -> MlaMode:
        if not latents.in_kernels:
            return super()._fastest(latents, span, window)
        return choose_mode(self.sizes, self.num_heads, span.end - span.count, span.count, window)

    def _step(
        self,
        q: Tensor,
        latent: Tensor,
        rope: tuple[Tensor, Tensor],
        view: StoredLatents,
        columns: slice | np.ndarray,
        slots: np.ndarray | None = None,
    ) -> Tensor:
        """These tokens of the forward pass, of which `columns` are theirs: -> [B, T, H V]

        slots   [B T] int64 that their rows take; None: the last of their sequences
        """
        batch, num_tokens = q.shape[:2]
        table, ends = (each[columns] for each in view.each())
        turns = self.angles(rope, batch)
        y = self._attend(view, as_rows(q), as_rows(latent), turns, table, ends, slots=slots)
        return torch.from_numpy(y).view(batch, num_tokens, -1)

    def _observed(
        self, q: Tensor, latent: Tensor, rope: tuple[Tensor, Tensor], view: StoredLatents, span: Span
    ) -> Tensor:
        """`_step` of the span's tokens under a policy, so many at once that their weights take little memory"""
        batch, num_tokens = q.shape[:2]
        self._show_queries(q, view)
        slots = None if view.slots is None else view.slots[span.which]
        if view.observe is None:
            out = self._step(q, latent, rope, view, span.new, slots)
            view.done(span, lambda one: None)
            return out
        new, turns, (table, ends) = (as_rows(q), as_rows(latent)), self.angles(rope, batch), view.each()
        table, ends, seen = table[span.new], ends[span.new], TokenWeights(view.observe, span, batch, self.num_heads)
        parts = []
        for start in range(0, batch * num_tokens, OBSERVED_TOKENS):
            some = slice(start, start + OBSERVED_TOKENS)
            mass = np.empty((len(ends[some]), span.end), np.float32)
            turned = [angles[some] for angles in turns]
            taken = None if slots is None else slots[some]
            given = (new[0][some], new[1][some], turned, table[some], ends[some])
            parts.append(self._attend(view, *given, slots=taken, mass=mass))
            seen.add(torch.from_numpy(mass))
        view.done(span, seen.of)
        return torch.from_numpy(np.concatenate(parts)).view(batch, num_tokens, -1)

    def _attend(
        self,
        view: StoredLatents,
        q: np.ndarray,
        latent: np.ndarray,
        turns: list[np.ndarray],
        table: np.ndarray,
        ends: np.ndarray,
        **observed: np.ndarray | None,
    ) -> np.ndarray:
        """[M, H V] of M tokens, in one call; observed: `slots` and `mass`"""
        rows = (view.latents.format.name, view.storage.rows_of_kernels())
        norm, rule = (self.kv_norm.array, self.kv_norm.eps), (self.score_scale(view.rule), view.rule.window)
        return self.packed.attend(q, latent, *norm, *turns, *rows, table, ends, *rule, **observed)

    def angles(self, rope: tuple[Tensor, Tensor], batch: int) -> list[np.ndarray]:
        """cos and sin [T, D] as cpu_kernels take them: of every token of the forward pass, [B T, D]"""
        return [angles.repeat(batch, 1).numpy() if batch > 1 else angles.numpy() for angles in rope]

    def score_scale(self, rule: AttentionRule) -> float:
        return rule.scale * self.softmax_scale

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
        return kernels.MlaHeads(heads.keys.numpy(), heads.values.numpy(), name, exact=self.impl == EXACT)
