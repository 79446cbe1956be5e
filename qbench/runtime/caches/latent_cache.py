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


class LatentCache(Cache):
    """Rows that are kept. In torch, or as one call of cpu_kernels that reads each row once and as it is stored.

    The call takes every new token as a sequence of its own that has its sequence's pages and ends with that token.

    latents      with the mode that is always taken, or None: whichever is measured to be fastest
    block_table  [M, pages] int32, ends [M] int64: of the M tokens of the forward pass
    """

    block_table: np.ndarray
    ends: np.ndarray

    def __init__(self, config: ModelConfig, places: Places[LatentStorage], mode: str | None = None) -> None:
        super().__init__(config, places.batch)
        self.places = places
        self.latents = self._latents = replace(present(places.memories[0].latents), mode=mode)
        self._longest = 0  # tokens of the longest sequence after the forward pass

    @property
    def memories(self) -> Sequence[LatentStorage]:
        """One per layer."""
        return self.places.memories

    @property
    def bytes_per_token(self) -> float:
        return self.places.bytes_per_token

    @property
    def size_bytes(self) -> int:
        return self.places.size_bytes

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        check_seq_len(step.end, self.max_seq_len)
        self._longest = step.end
        self.places.begin([tokens.shape[1]] * self.batch if step.counts is None else step.counts.tolist())
        if not self._latents.in_kernels:
            return step
        table = self.places.block_table
        if step.counts is not None:
            self.block_table = np.repeat(table, step.counts, axis=0)
            self.ends = step.positions.numpy() + 1
            return step
        num_tokens, ends = step.end - step.seq_len, np.arange(step.seq_len + 1, step.end + 1)
        self.block_table = table if num_tokens == 1 else np.repeat(table, num_tokens, axis=0)
        self.ends = ends if self.batch == 1 else np.tile(ends, self.batch)
        return step

    def latent_spans(self, layer: int, num_tokens: int) -> list[Span]:
        return equal_spans(self, num_tokens)

    def latent_view(self, layer: int, num_tokens: int) -> StoredLatents:
        self.places.reserve(layer, self._longest)  # of a varlen batch room for all sequences
        given = (self._latents, self.rules[layer], self.latent_spans(layer, num_tokens))
        return StoredLatents(
            *given, self.memories[layer], self.places.block_table, lambda: (self.block_table, self.ends)
        )

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor | None, positions: Tensor) -> Tensor:
        return attend_by_view(self, layer, q, k)

    def has_kernel_view(self, num_tokens: int) -> bool:
        return self._latents.in_kernels

    def kernel_view(self, num_tokens: int) -> KernelView:
        for layer in range(len(self.memories)):
            self.places.reserve(layer, self._longest)
        return KernelView([memory.rows_of_kernels() for memory in self.memories], self.block_table, self.ends)

    def move(self, device: torch.device) -> None:
        for storage in self.memories:
            storage.move(device)

    def advance(self, num_tokens: int | np.ndarray) -> None:
        super().advance(num_tokens)
        self.places.advance(self.seq_lens)

    @property
    def peak_bytes(self) -> int | None:
        return self.places.peak_bytes

    def mark(self) -> None:
        self.places.mark(self.seq_lens)

    def truncate(self, seq_len: int | np.ndarray) -> None:
        wanted = np.minimum(self.seq_lens, seq_len)
        self.places.check_truncate(wanted)
        before = self.seq_lens
        super().truncate(seq_len)
        self.places.truncate(before, wanted)


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
