"""LatentCache: of each token one row that all heads share, the latent of keys and values and the rotated key."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.attention.causal_attention import causal_attention, sees
from qbench.runtime.caches.cache import HoldsNothing
from qbench.runtime.caches.latent_storage import LatentFormat, LatentStorage
from qbench.runtime.caches.past import Past
from qbench.runtime.caches.places import Places
from qbench.runtime.caches.sequences import check_seq_len
from qbench.runtime.caches.step import Step
from quant.extension import has_cpu_kernels
from quant.models import MlaConfig, ModelConfig
from quant.present import present

# cpu_kernels take rows in whole registers, and values four registers at a time.
ROW_STEP, VALUE_STEP = 16, 64


def has_latent_kernels(mla: MlaConfig) -> bool:
    """Whether cpu_kernels attend over rows of these sizes."""
    return has_cpu_kernels() and mla.latent_size % ROW_STEP == 0 and mla.kv_lora_rank % VALUE_STEP == 0


@dataclass(frozen=True, slots=True)
class Span:
    """Sequences of a forward pass that hold as many tokens, and get as many.

    which   their places in the batch
    new     the columns of the forward pass that are theirs
    seq_len  tokens that each holds
    count   tokens that each gets
    """

    which: slice
    new: slice
    seq_len: int
    count: int


class LatentRows(HoldsNothing):
    """Nothing kept: the new tokens are the whole sequence, each row as its format would give it back."""

    def __init__(self, config: ModelConfig, fmt: LatentFormat, batch: int = 1) -> None:
        super().__init__(config, batch)
        self.format = fmt
        self.rank = present(config.mla).kv_lora_rank

    def spans(self, num_tokens: int) -> list[Span]:
        """Spans of [B, num_tokens] tokens; one per sequence of a varlen batch [1, num_tokens]."""
        if self.cu_seqlens is None:
            return [Span(slice(None), slice(None), self.seq_len, num_tokens)]
        return [
            Span(slice(b, b + 1), slice(start, end), int(self.seq_lens[b]), end - start)
            for b, (start, end) in enumerate(pairwise(self.cu_seqlens.tolist()))
        ]

    def extend(self, layer: int, rows: Tensor, span: Span) -> Tensor:
        """Store the rows of the span's new tokens.

        rows     [B, T, latent_size] float32: the latent after its norm, and the rotated key
        returns  [B, S, latent_size] float32: as they are read, all its tokens that any new one sees
        """
        return self.format.decode(self.format.encode(self._seen(layer, rows, span), self.rank), self.rank)

    def _seen(self, layer: int, rows: Tensor, span: Span) -> Tensor:
        """Of the rows of all tokens those that any new one sees: no token before the first one's window."""
        window = self.rules[layer].window
        return rows[:, -(window + span.count - 1) :] if window else rows

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor | None, positions: Tensor) -> Tensor:
        """Latent attention as one kv head whose values are the first channels of its keys.

        q        [B, H, T, latent_size] float32, with the up-projection of keys absorbed
        k        [B, 1, T, latent_size] float32: the new rows; v is not looked at
        returns  [B, H, T, kv_lora_rank] float32
        """
        spans = self.spans(k.shape[2])
        parts = [self.attend_joined(layer, q[:, :, span.new], k[:, 0, span.new], span) for span in spans]
        return torch.cat(parts, 2)

    def attend_joined(self, layer: int, q: Tensor, rows: Tensor, span: Span) -> Tensor:
        """`attend` of the span: q [B, H, T, latent_size], rows [B, T, latent_size] -> [B, H, T, kv_lora_rank]"""
        rows = self.extend(layer, rows, span)[:, None]  # [B, 1, S, K]
        return causal_attention(q, rows, rows[..., : self.rank], self.rules[layer])

    def attend_parts(self, layer: int, kept: Tensor, turned: Tensor, rows: Tensor, span: Span) -> Tensor:
        """`attend_joined` of queries in two parts, their scores added.

        kept     [B, H, T, kv_lora_rank], turned [B, H, T, qk_rope_head_dim]
        """
        rows = self.extend(layer, rows, span)[:, None]  # [B, 1, S, K]
        latents = rows[..., : self.rank]
        scores = kept @ latents.transpose(2, 3) + turned @ rows[..., self.rank :].transpose(2, 3)  # [B, H, T, S]
        unseen = ~sees(scores.shape[2], scores.shape[3], self.rules[layer].window, scores.device)
        return (scores * self.rules[layer].scale).masked_fill(unseen, -torch.inf).softmax(-1) @ latents


class LatentCache(LatentRows):
    """Rows that are kept. In torch, or as one call of cpu_kernels that reads each row once and as it is stored.

    The call takes every new token as a sequence of its own, that lies where its sequence lies and ends with that token.

    mode         the name of a way to attend that is always taken, or None: whichever is measured to be fastest
    in_kernels   whether cpu_kernels attend, if they take rows of these sizes
    block_table  [M, pages] int32, ends [M] int64: of the M tokens of the forward pass
    """

    block_table: np.ndarray
    ends: np.ndarray

    def __init__(
        self, config: ModelConfig, places: Places[LatentStorage], mode: str | None = None, *, in_kernels: bool
    ) -> None:
        super().__init__(config, places.memories[0].format, places.batch)
        self.places, self.mode = places, mode
        self.in_kernels = in_kernels and has_latent_kernels(present(config.mla))
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
        if not self.in_kernels:
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

    def extend(self, layer: int, rows: Tensor, span: Span) -> Tensor:
        self.store(layer, rows, span)
        held = self.memories[layer].read(self._past(span))
        return self.format.decode(self._seen(layer, held, span), self.rank)

    def store(self, layer: int, rows: Tensor, span: Span) -> None:
        """Keep the rows [B, T, latent_size] float32 of the span's new tokens."""
        self.places.reserve(layer, self._longest)  # of a varlen batch room for all sequences
        self.memories[layer].append(rows, self._past(span))

    def _past(self, span: Span) -> Past:
        table = self.places.block_table[span.which]
        return Past(table, np.full(len(table), span.seq_len + span.count))

    def rows(self, layer: int) -> np.ndarray:
        """The layer's memory as cpu_kernels take it, with room for the forward pass: [pages, page_size, width]"""
        self.places.reserve(layer, self._longest)
        return self.memories[layer].rows_of_kernels()

    def attend_joined(self, layer: int, q: Tensor, rows: Tensor, span: Span) -> Tensor:
        if not self.in_kernels:
            return super().attend_joined(layer, q, rows, span)
        self.store(layer, rows, span)
        batch, num_heads, num_tokens, width = q.shape
        tokens = slice(None) if self.cu_seqlens is None else span.new
        queries = q.transpose(1, 2).reshape(batch * num_tokens, num_heads, width).contiguous()
        out = torch.empty(batch * num_tokens, num_heads, self.rank)
        past = (self.rows(layer), self.block_table[tokens], self.ends[tokens])
        attend_latents = importlib.import_module("cpu_kernels").attend_latents
        rule = self.rules[layer]
        attend_latents(queries.numpy(), self.format.name, *past, out.numpy(), rule.scale, rule.window)
        return out.unflatten(0, (batch, num_tokens)).transpose(1, 2)  # [B, H, T, R]

    def attend_parts(self, layer: int, kept: Tensor, turned: Tensor, rows: Tensor, span: Span) -> Tensor:
        if not self.in_kernels:
            return super().attend_parts(layer, kept, turned, rows, span)
        return self.attend_joined(layer, torch.cat((kept, turned), -1), rows, span)

    def advance(self, num_tokens: int | np.ndarray) -> None:
        super().advance(num_tokens)
        self.places.advance(self.seq_lens)

    def truncate(self, seq_len: int | np.ndarray) -> None:
        wanted = np.minimum(self.seq_lens, seq_len)
        self.places.check_truncate(wanted)
        before = self.seq_lens
        super().truncate(seq_len)
        self.places.truncate(before, wanted)
