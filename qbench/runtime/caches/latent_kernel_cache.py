"""KernelLatents: rows of latents that cpu_kernels store and attend over."""

import importlib
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.caches.latent_cache import HeldLatents, LatentCache, LatentFormat, Span
from qbench.runtime.caches.step import Step
from quant.extension import has_cpu_kernels
from quant.models import MlaConfig, ModelConfig
from quant.present import present

# cpu_kernels take rows in whole registers, and values four registers at a time.
ROW_STEP, VALUE_STEP = 16, 64


def has_latent_kernels(mla: MlaConfig) -> bool:
    """Whether cpu_kernels attend over rows of these sizes."""
    return has_cpu_kernels() and mla.latent_size % ROW_STEP == 0 and mla.kv_lora_rank % VALUE_STEP == 0


def new_latent_cache(
    config: ModelConfig, fmt: LatentFormat, mode: str | None, batch: int, capacity: int, *, in_kernels: bool
) -> LatentCache:
    """in_kernels: where they take rows of these sizes"""
    kind = KernelLatentCache if in_kernels and has_latent_kernels(present(config.mla)) else LatentCache
    return kind(config, fmt, batch, capacity, mode)


class KernelLatents(HeldLatents):
    """Absorbed attention as one call of cpu_kernels, that reads each row once and as it is stored.

    Every new token counts as a sequence of its own, that lies where its sequence lies and ends with that token.
    Comes before the class that keeps the rows among a class's bases.

    block_table  [M, pages] int32, ends [M] int64: of the M tokens of the forward pass
    longest      tokens of the longest sequence after it
    """

    block_table: np.ndarray
    ends: np.ndarray
    longest: int

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        self.longest = step.end
        if step.counts is not None:
            self.block_table = np.repeat(self.table(), step.counts, axis=0)
            self.ends = step.positions.numpy() + 1
            return step
        num_tokens, ends = step.end - step.seq_len, np.arange(step.seq_len + 1, step.end + 1)
        self.block_table = self.table() if num_tokens == 1 else np.repeat(self.table(), num_tokens, axis=0)
        self.ends = ends if self.batch == 1 else np.tile(ends, self.batch)
        return step

    @abstractmethod
    def table(self) -> np.ndarray:
        """[B, pages] int32: where each sequence lies, with the tokens of the forward pass."""

    @abstractmethod
    def rows(self, layer: int) -> np.ndarray:
        """The layer's memory as cpu_kernels take it, with room for the forward pass: [pages, page_size, width]"""

    def attend_joined(self, layer: int, q: Tensor, rows: Tensor, span: Span) -> Tensor:
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
        return self.attend_joined(layer, torch.cat((kept, turned), -1), rows, span)


class KernelLatentCache(KernelLatents, LatentCache):
    """LatentCache on the kernels: a page is all memory of a sequence."""

    def table(self) -> np.ndarray:
        return self._table

    @cached_property
    def _table(self) -> np.ndarray:
        return np.arange(self.batch, dtype=np.int32)[:, None]

    def rows(self, layer: int) -> np.ndarray:
        self.reserve(layer, self.longest)
        return as_rows_of_kernels(self.held[layer])


def as_rows_of_kernels(held: Tensor) -> np.ndarray:
    return (held.view(torch.uint16) if held.dtype == torch.bfloat16 else held).numpy()
