"""`NoCache`: no keys and values at all; every forward pass computes them again for all tokens."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.attention.in_torch import CausalAttention
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.sequences import CacheConfig
from qbench.runtime.caches.step import Step, varlen_step
from qbench.runtime.caches.storage.latent_format import Latents
from qbench.runtime.caches.storage.storages import layer_scales
from qbench.runtime.caches.view.latent_view import LatentView, Span, spans_of
from quant.kv import KVScheme
from quant.present import present


class NoCache(Cache):
    """Keeps the tokens themselves, so that a step costs as much as a prompt of all of them. Caches save that cost.

    Queries read keys and values as the KV format would give them back. If the format has a residual, each query sees
    the tokens encoded that it would see encoded in decoding. If another format encodes several tokens together, a query
    sees its own group's keys already encoded. In decoding it sees them so only once the group is full: measured quality
    is a little below that of decoding.

    scheme     format of keys and values; None: they stay as they are
    attention  one of `attention.in_torch`
    latents    how rows of latents are read; None: every head has its own keys and values
    """

    one_width = False

    def __init__(
        self,
        config: CacheConfig,
        batch: int = 1,
        scheme: KVScheme | None = None,
        attention: CausalAttention = causal_attention,
        latents: Latents | None = None,
    ) -> None:
        super().__init__(config, batch)
        self.scheme, self.attention, self.latents = scheme, attention, latents
        self._held = [torch.empty(0, dtype=torch.int64)] * batch  # [length] tokens of each sequence
        self._read = self._held  # and those of the forward pass that runs

    @property
    def bytes_per_token(self) -> float:
        return 0

    @property
    def size_bytes(self) -> int:
        return 0

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        new = tokens if step.counts is None else step.tokens[0].split(step.counts.tolist())
        self._read = [torch.cat(both) for both in zip(self._held, new, strict=True)]
        if not self.seq_len:
            return step
        if step.counts is None:
            return replace(step, tokens=torch.stack(self._read), seq_len=0, num_asked=tokens.shape[1])
        ends = self.seq_lens + step.counts
        padded = torch.nn.utils.rnn.pad_sequence(self._read, batch_first=True)  # [B, longest]
        whole = varlen_step(padded, np.zeros_like(ends), ends)
        self.cu_seqlens = whole.cu_seqlens
        given = zip(step.counts.tolist(), np.cumsum(ends).tolist(), strict=True)
        asked = torch.cat([torch.arange(end - count, end) for count, end in given])
        return replace(whole, added=step.counts, places=step.places, asked=asked)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        if self.cu_seqlens is None:
            return self._attend(layer, q, k, v)
        spans = pairwise(self.cu_seqlens.tolist())
        return torch.cat([self._attend(layer, *(x[:, :, start:end] for x in (q, k, v))) for start, end in spans], dim=2)

    def _attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`attend` of sequences of one length."""
        rule = self.rules[layer]
        if self.scheme is None:
            return self.attention(q, k, v, rule)
        fmt, (k_scale, v_scale) = self.scheme.format, layer_scales(self.scheme, layer)
        if fmt.residual:
            k, v = k.half().float(), v.half().float()
        keys, values = fmt.keys.round_trip(k, k_scale), fmt.values.round_trip(v, v_scale)
        if not fmt.residual:
            return self.attention(q, keys, values, rule)
        outputs = []
        for start, end in fmt.uniform_runs(0, q.shape[2]):
            encoded = fmt.num_encoded(end)
            seen_keys = torch.cat([keys[:, :, :encoded], k[:, :, encoded:end]], dim=2)
            seen_values = torch.cat([values[:, :, :encoded], v[:, :, encoded:end]], dim=2)
            outputs.append(self.attention(q[:, :, start:end], seen_keys, seen_values, rule))
        return torch.cat(outputs, dim=2)

    def latent_spans(self, layer: int, num_tokens: int) -> list[Span]:
        cu_seqlens = self.cu_seqlens
        ends = np.full(self.batch, num_tokens) if cu_seqlens is None else np.diff(cu_seqlens)
        return spans_of(ends, num_tokens, cu_seqlens)

    def latent_view(self, layer: int, num_tokens: int) -> LatentView:
        return LatentView(present(self.latents), self.rules[layer], self.latent_spans(layer, num_tokens))

    def advance(self, num_tokens: int | np.ndarray) -> None:
        super().advance(num_tokens)
        self._held = self._read

    def truncate(self, seq_len: int | np.ndarray) -> None:
        super().truncate(seq_len)
        self._held = [tokens[:kept] for tokens, kept in zip(self._held, self.seq_lens.tolist(), strict=True)]
