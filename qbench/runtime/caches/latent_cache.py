"""`LatentCache`: of each token one row that all heads share, the latent of keys and values and the rotated key."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.attention.mla_modes import COMPRESSED
from qbench.runtime.caches.cache import Cache, HoldsNothing
from qbench.runtime.caches.kernel_view import KernelView
from qbench.runtime.caches.latent_format import LatentFormat, Latents
from qbench.runtime.caches.latent_storage import LatentStorage
from qbench.runtime.caches.latent_view import LatentView, Span, StoredLatents, spans_of
from qbench.runtime.caches.places import Places
from qbench.runtime.caches.sequences import check_seq_len
from qbench.runtime.caches.step import Step
from quant.models import ModelConfig
from quant.present import present


class LatentRows(HoldsNothing):
    """Nothing kept: the new tokens are the whole sequence, each row as its format would give it back."""

    def __init__(self, config: ModelConfig, fmt: LatentFormat, batch: int = 1) -> None:
        super().__init__(config, batch)
        self.latents = self._latents = Latents(fmt, present(config.mla).kv_lora_rank, False, COMPRESSED)

    def latent_view(self, layer: int, num_tokens: int) -> LatentView:
        return LatentView(self._latents, self.rules[layer], self.latent_spans(layer, num_tokens))

    def latent_spans(self, layer: int, num_tokens: int) -> list[Span]:
        return equal_spans(self, num_tokens)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor | None, positions: Tensor) -> Tensor:
        return attend_by_view(self, layer, q, k)


def attend_by_view(cache: Cache, layer: int, q: Tensor, k: Tensor) -> Tensor:
    """Attention over latents as one KV head whose values are the first channels of its keys.

    q        [B, H, T, latent_size] float32, with the up-projection of keys absorbed
    k        [B, 1, T, latent_size] float32: the new rows
    returns  [B, H, T, kv_lora_rank] float32
    """
    view = cache.latent_view(layer, k.shape[2])
    return torch.cat([view.attend_joined(q[:, :, span.new], k[:, 0, span.new], span) for span in view.spans], 2)


def equal_spans(cache: Cache, num_tokens: int) -> list[Span]:
    """Spans of a cache in which a token's slot is its place in the text."""
    if cache.cu_seqlens is None:
        return [Span(slice(None), slice(None), cache.seq_len + num_tokens, num_tokens)]
    return spans_of(cache.seq_lens + np.diff(cache.cu_seqlens), num_tokens, cache.cu_seqlens)
