"""Multi-head latent attention: keys and values of all heads out of one low-rank latent a token."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.attention.mla_modes import MODES, MlaMode, choose_mode_in_torch
from qbench.runtime.attention.rope import rotate
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.storage.latent_format import Latents
from qbench.runtime.caches.view.latent_view import LatentView, Span
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.latent_heads import LatentHeads, MaterialisedHeads, full_weight
from qbench.runtime.layers.norm import Norm
from quant.models import ModelConfig
from quant.present import present

LATENT_EPS = 1e-6  # of the norms inside the attention, whatever the config says of the others
# Tokens whose keys and values are made at once, unless one sequence has more. As many as a product reads its weights
# once for. Queries, keys, values, their padding and outputs are 97 KB per token of DeepSeek-V2-Lite: 50 MB.
LATENT_TOKENS = 512


class NormedLinears(NamedTuple):
    """A norm, and the product that reads its output."""

    norm: Norm
    linears: FusedLinears


class LatentAttention:
    """Projections around the cache by any of MODES; the cache says which.

    down            x -> queries (or their latent, if they have one), and the latent of keys and values
    q_up            from the latent of the queries; None if `down` gives the queries
    kv_norm, kv_up  from the latent of keys and values
    impl            of the linears
    source          DeepSeek-V2, arXiv:2405.04434, section 2.1
    """

    step = None  # attention alone is never one call: a cache of latents has its own table, `mla_modes.MODES`

    def __init__(
        self,
        config: ModelConfig,
        layer: int,
        down: FusedLinears,
        kv_norm: Norm,
        kv_up: FusedLinears,
        output: FusedLinears,
        q_up: NormedLinears | None = None,
        impl: str = "auto",
    ) -> None:
        self.sizes = present(config.mla)
        self.num_heads = config.num_heads
        self.softmax_scale = config.rope.softmax_scale
        self.layer = layer
        self.down, self.output = down, output
        self.q_up = q_up
        self.kv_norm, self.kv_up = kv_norm, kv_up
        self.impl = impl

    def __call__(self, x: Tensor, norm: Norm, rope: tuple[Tensor, Tensor], positions: Tensor, cache: Cache) -> Tensor:
        if cache.latents is not None:
            return self._over_view(x, norm, rope, cache.latent_view(self.layer, x.shape[1]))
        q, latent = self._project(x, norm)
        k, v = self._keys_values(self._rows(latent, rope))
        if cache.one_width:
            v = F.pad(v, (0, self.sizes.qk_head_dim - self.sizes.v_head_dim))
        out = cache.attend(self.layer, self._joined(q, rope), k, v, positions)[..., : self.sizes.v_head_dim]
        del k, v  # free before the last product
        return self._output(out, x)

    def mode(self, latents: Latents, span: Span, window: int) -> MlaMode:
        """How a sequence of the span attends; window: of the layer, or 0"""
        if latents.mode is not None:
            return MODES[latents.mode]
        return self._fastest(latents, span, window)

    def _fastest(self, latents: Latents, span: Span, window: int) -> MlaMode:
        return choose_mode_in_torch(self.sizes, span.count)

    def _mode(self, view: LatentView, span: Span) -> MlaMode:
        return self.mode(view.latents, span, view.rule.window)

    def expanded(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values that each head makes of rows, the rotated part of a key first.

        rows     [B, S, latent_size] float32
        returns  [B, H, S, D] and [B, H, S, V] float32
        """
        k, v = self._keys_values(rows)
        return k.roll(self.sizes.qk_rope_head_dim, -1), v

    def _unrotated(self, q: Tensor) -> Tensor:
        """q [B, T, H D] as projected -> [B, H, T, D], to meet keys of `expanded` once its first part is rotated"""
        kept, turned = self._heads(q).split((self.sizes.qk_nope_head_dim, self.sizes.qk_rope_head_dim), -1)
        return self._scaled(torch.cat((halves(turned), kept), -1))

    def pack(self) -> int:
        """Makes the matrices of modes over latents ahead of the first token. returns their bytes"""
        return self.heads.size_bytes

    def _project(self, x: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
        """-> q [B, T, H D], and the latent with the key that all heads share [B, T, latent_size]"""
        q, latent = self.down(x, norm)
        if self.q_up is not None:
            (q,) = self.q_up.linears(q, self.q_up.norm)
        return q, latent

    def _output(self, out: Tensor, x: Tensor) -> Tensor:
        """out [B, H, T, V] -> x plus its projection"""
        (y,) = self.output(out.transpose(1, 2).flatten(2), residual=x)
        return y

    def _over_view(self, x: Tensor, norm: Norm, rope: tuple[Tensor, Tensor], view: LatentView) -> Tensor:
        if len(x) == 1 or len(view.spans) == 1:
            return self._over_latents(x, norm, rope, view)
        # Sequences with as many new tokens use other numbers of slots: they pass one after another, as a varlen batch.
        cos, sin = (angles.repeat(len(x), 1) for angles in rope)
        return self._over_latents(x.flatten(0, 1)[None], norm, (cos, sin), view).view(x.shape)

    def _over_latents(self, x: Tensor, norm: Norm, rope: tuple[Tensor, Tensor], view: LatentView) -> Tensor:
        spans = view.spans
        if any(self._mode(view, span).materialises for span in spans):
            return self._materialised(x, norm, rope, view)
        if len(x) > 1 and not self._mode(view, spans[0]).absorbs:
            return self._in_turns(x, norm, rope, view, spans[0])
        q, latent = self._project(x, norm)
        parts = [self._of_span(q[:, s.new], latent[:, s.new], columns_of(rope, s), view, s) for s in spans]
        (y,) = self.output(parts[0] if len(parts) == 1 else torch.cat(parts, 1), residual=x)
        return y

    def _of_span(self, q: Tensor, latent: Tensor, rope: tuple[Tensor, Tensor], view: LatentView, span: Span) -> Tensor:
        """Attention of the span's new tokens over all that it holds: -> [B, T, H V]"""
        mode = self._mode(view, span)
        if mode.absorbs:
            return _joined_heads(self._absorbed(q, latent, rope, view, span, mode))
        return _joined_heads(self._compressed(q, latent, rope, view, span))

    def _in_turns(self, x: Tensor, norm: Norm, rope: tuple[Tensor, Tensor], view: LatentView, span: Span) -> Tensor:
        """Attention of a few sequences at a time: the bits are those of all at once if a product's bits do not depend
        on the number of its tokens.
        """
        y = torch.empty_like(x)
        for some in _turns(len(x), span):
            y[some] = self._of_few(x[some], norm, rope, view, replace(span, which=some))
        return y

    def _of_few(self, x: Tensor, norm: Norm, rope: tuple[Tensor, Tensor], view: LatentView, span: Span) -> Tensor:
        q, latent = self._project(x, norm)
        (y,) = self.output(_joined_heads(self._compressed(q, latent, rope, view, span)), residual=x)
        return y

    def _compressed(
        self, q: Tensor, latent: Tensor, rope: tuple[Tensor, Tensor], view: LatentView, span: Span
    ) -> Tensor:
        """[B, H, T, V] by the keys and values of all tokens, made again."""
        k, v = self._keys_values(view.extend(self._rows(latent, rope), span))
        joined = self._joined(q, rope)
        out = causal_attention(joined, k, v, view.rule)
        self._show_queries(q, view)
        view.met(joined, k, span)
        return out

    def _show_queries(self, q: Tensor, view: LatentView) -> None:
        """q [B, T, H D] as projected, of the span that attends"""
        if view.reads_queries:
            view.queries = self._unrotated(q)

    def _absorbed(
        self,
        q: Tensor,
        latent: Tensor,
        rope: tuple[Tensor, Tensor],
        view: LatentView,
        span: Span,
        mode: MlaMode,
    ) -> Tensor:
        """[B, H, T, V]"""
        self._show_queries(q, view)
        rows = self._rows(latent, rope)
        kept, turned = self._parts(q, rope)
        kept, turned = self._scaled(self.heads.absorb(kept)), self._scaled(turned)
        if mode.joins:
            sums = view.attend_joined(torch.cat((kept, turned), -1), rows, span)
        else:
            sums = view.attend_parts(kept, turned, rows, span)
        return self.heads.values_of(sums)

    def _materialised(self, x: Tensor, norm: Norm, rope: tuple[Tensor, Tensor], view: LatentView) -> Tensor:
        assert not view.reads_queries, "the mode forms no queries"
        q, latent = self.down(x, norm)
        hidden = norm(x) if self.q_up is None else self.q_up.norm(q)  # input of the queries' product
        products, rows = self.materialised, self._rows(latent, rope)
        kept = self._scaled(self._heads(F.linear(hidden, products.queries)))  # [B, H, T, R]
        turned = self._scaled(rotate(halves(self._heads(F.linear(hidden, products.rotated))), *rope))
        parts = [view.attend_parts(kept[:, :, s.new], turned[:, :, s.new], rows[:, s.new], s) for s in view.spans]
        return x + F.linear(torch.cat(parts, 2).transpose(1, 2).flatten(2), products.outputs)

    @cached_property
    def heads(self) -> LatentHeads:
        return LatentHeads(self.kv_up, self.sizes, self.num_heads)

    def _rows(self, latent: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        """[B, T, latent_size] as projected -> the same as a cache keeps it: normed, and rotated"""
        latent, turned = latent.split((self.sizes.kv_lora_rank, self.sizes.qk_rope_head_dim), -1)
        return torch.cat((self.kv_norm(latent), rotate(halves(turned), *rope)), -1)

    def _parts(self, q: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """q [B, T, H D] -> its unrotated and its rotated part, [B, H, T, ...]"""
        kept, turned = self._heads(q).split((self.sizes.qk_nope_head_dim, self.sizes.qk_rope_head_dim), -1)
        return kept, rotate(halves(turned), *rope)

    def _joined(self, q: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        """q [B, T, H D] -> [B, H, T, D], the last qk_rope_head_dim of D rotated"""
        return self._scaled(torch.cat(self._parts(q, rope), -1))

    @cached_property
    def materialised(self) -> MaterialisedHeads:
        queries = full_weight(self.down) if self.q_up is None else full_weight(self.q_up.linears)
        return MaterialisedHeads(self.heads, queries, full_weight(self.output))

    def _scaled(self, q: Tensor) -> Tensor:
        return q if self.softmax_scale == 1 else q * self.softmax_scale

    def _keys_values(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, latent_size] -> k [B, H, S, D], v [B, H, S, V]"""
        sizes = self.sizes
        latent, turned = rows.split((sizes.kv_lora_rank, sizes.qk_rope_head_dim), -1)
        (up,) = self.kv_up(latent)
        kept, v = self._heads(up).split((sizes.qk_nope_head_dim, sizes.v_head_dim), -1)  # [B, H, S, ...]
        k = torch.cat((kept, turned[:, None].expand(-1, self.num_heads, -1, -1)), -1)  # one rotated key for all heads
        return k, v

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # [B, T, H D] -> [B, H, T, D]


def _turns(batch: int, span: Span) -> Iterator[slice]:
    """Sequences that pass together, by their places: of up to LATENT_TOKENS tokens, or one; nearly as many a turn."""
    turns = -(-batch // max(1, LATENT_TOKENS // span.end))
    return (slice(batch * turn // turns, batch * (turn + 1) // turns) for turn in range(turns))


def _joined_heads(out: Tensor) -> Tensor:
    """[B, H, T, V] -> [B, T, H V]"""
    return out.transpose(1, 2).flatten(2)


def columns_of(rope: tuple[Tensor, Tensor], span: Span) -> tuple[Tensor, Tensor]:
    """cos and sin of the span's new tokens"""
    cos, sin = rope
    return cos[span.new], sin[span.new]


def halves(x: Tensor) -> Tensor:
    """Rotary pairs from neighbours, as DeepSeek stores them, to entries half a width apart, as `rotate` turns them.

    Queries and keys change in the same way, so no product of the two changes.
    """
    return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
