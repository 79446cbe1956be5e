"""RecomputeCache: no keys and values at all, every forward pass computes them again for all tokens."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.caches.cache import HoldsNothing, NoCache
from qbench.runtime.caches.step import Step, varlen_step
from quant.models import ModelConfig


class RecomputeCache(HoldsNothing):
    """Keeps the tokens themselves, so that a step costs as much as a prompt of all of them. Caches save that cost.

    how   the cache of one forward pass over whole sequences: as NoCache
    """

    one_width = False

    def __init__(self, config: ModelConfig, how: NoCache) -> None:
        super().__init__(config, how.batch)
        self.how = how
        self._held = [torch.empty(0, dtype=torch.int64)] * how.batch  # [length] tokens of each sequence
        self._read = self._held  # and those of the forward pass that runs

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        if step.counts is None:
            self._read = [torch.cat(both) for both in zip(self._held, tokens, strict=True)]
            return replace(step, tokens=torch.stack(self._read), seq_len=0, num_asked=tokens.shape[1])
        new = step.tokens[0].split(step.counts.tolist())
        self._read = [torch.cat(both) for both in zip(self._held, new, strict=True)]
        ends = self.seq_lens + step.counts
        padded = torch.nn.utils.rnn.pad_sequence(self._read, batch_first=True)  # [B, longest]
        whole = varlen_step(padded, np.zeros_like(ends), ends)
        self.cu_seqlens = whole.cu_seqlens
        given = zip(step.counts.tolist(), np.cumsum(ends).tolist(), strict=True)
        asked = torch.cat([torch.arange(end - count, end) for count, end in given])
        return replace(whole, added=step.counts, places=step.places, asked=asked)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        self.how.cu_seqlens = self.cu_seqlens
        self.how.seq_lens = np.zeros_like(self.seq_lens)
        return self.how.attend(layer, q, k, v, positions)

    def advance(self, num_tokens: int | np.ndarray) -> None:
        super().advance(num_tokens)
        self._held = self._read

    def truncate(self, seq_len: int | np.ndarray) -> None:
        super().truncate(seq_len)
        self._held = [tokens[:kept] for tokens, kept in zip(self._held, self.seq_lens.tolist(), strict=True)]
