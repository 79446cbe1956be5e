"""SinkCache: a window, and the first tokens of the text beside it, at the positions that they have in the cache."""

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.attention.rope import rotate
from qbench.runtime.attention.rotations import Rotations
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.page_memory import TorchPages, tokens_there
from qbench.runtime.caches.paged_cache import Paged
from qbench.runtime.caches.pages import PagedSequence, PagePool
from quant.errors import InputError
from quant.models import AttentionRule, ModelConfig
from quant.present import present

QUERIES = 128  # scores of 32 heads over 4096 keys take 64 MB


class SinkCache(Paged, Cache):
    """A query sees the last `window` tokens, of a layer with a smaller window fewer, and the first `num_sinks`.

    Positions are those in the cache: with S sinks and a window of N no token stands further from a sink than S + N - 1,
    however long the text is, so that it may be longer than the model's context. Keys are kept as they are before the
    rotation, and turned when they are read. In torch: right, not fast, and the oracle of KernelSinkCache.

    raises   InputError where positions are not rotary, or are rotated before keys reach a cache
    source   Xiao et al. 2023, arXiv:2309.17453, section 3.2
    """

    one_width = False

    def __init__(self, pool: PagePool, sequences: Sequence[PagedSequence], window: int, num_sinks: int) -> None:
        check_sinks(pool.config, window, num_sinks)
        Cache.__init__(self, pool.config, len(sequences))
        self._over(pool, sequences)
        self.max_seq_len = sys.maxsize
        self.num_sinks = num_sinks
        self.most_before = num_sinks + window - 1  # kept tokens before a query
        self._rotations = Rotations(pool.config)
        own = [pool.config.rope_of(layer) is pool.config.local_rope for layer in range(pool.config.num_layers)]
        self._rope_of = [int(is_local) for is_local in own]

    def next_position(self, seq_lens: Any) -> Any:
        return min(seq_lens, self.most_before) if isinstance(seq_lens, int) else np.minimum(seq_lens, self.most_before)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        raise NotImplementedError("keys that are rotated already; expected rope_attend")

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        if self.cu_seqlens is None:
            return self._attend(layer, slice(None), self.seq_len, q, k, v)
        parts = []
        for b, (start, end) in enumerate(pairwise(self.cu_seqlens.tolist())):
            new = (x[:, :, start:end] for x in (q, k, v))  # [1, heads, T, D]
            parts.append(self._attend(layer, slice(b, b + 1), int(self.seq_lens[b]), *new))
        return torch.cat(parts, dim=2)

    def _attend(self, layer: int, which: slice, seq_len: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Of the sequences `which`, all of which hold `seq_len` tokens; q, k not rotated -> [B, H, T, D]"""
        pages = [sequence.pages for sequence in self.sequences[which]]
        memory = self.pool.memory
        assert isinstance(memory, TorchPages)
        keys, values = memory.extend(layer, pages, seq_len, k, v)  # [B, G, S, D]
        num_new, end = q.shape[2], seq_len + q.shape[2]
        tokens = tokens_there(pages, end, self.pool.page_size)  # [S]
        start = self.next_position(seq_len)
        angles = present(self._rotations(0, start + num_new)[self._rope_of[layer]])
        # Of what lies before the first query's window positions do not count: it is hidden.
        places = torch.where(tokens < self.num_sinks, tokens, (tokens - seq_len + start).clamp(min=0))
        keys = _turn(keys, angles, places)
        near = torch.arange(start, start + num_new)  # of each query, as its window sees it, and as a sink does
        far = near.clamp(max=self.most_before)
        q = q.unflatten(1, (keys.shape[1], -1))  # [B, G, H / G, T, D]
        out = []
        for first in range(0, num_new, QUERIES):
            some = slice(first, first + QUERIES)
            queries = [_turn(q[:, :, :, some], angles, at[some]) for at in (near, far)]
            distance = torch.arange(seq_len, end)[some, None] - tokens  # [t, S]
            out.append(self._sums(queries, keys, values, distance, tokens, self.rules[layer]))
        return torch.cat(out, 3).flatten(1, 2)

    def _sums(
        self, queries: list[Tensor], keys: Tensor, values: Tensor, distance: Tensor, tokens: Tensor, rule: AttentionRule
    ) -> Tensor:
        """queries: [B, G, H / G, t, D] turned for the window and for sinks -> [B, G, H / G, t, D]"""
        is_sink = tokens < self.num_sinks
        num_sinks = int(is_sink.sum())  # these are the first
        keys, values = keys[:, :, None], values[:, :, None]  # [B, G, 1, S, D]
        near = queries[0] @ keys[..., num_sinks:, :].transpose(-1, -2)
        far = queries[1] @ keys[..., :num_sinks, :].transpose(-1, -2)
        scores = rule.scale * torch.cat((far, near), -1)  # [B, G, H / G, t, S]
        if rule.softcap:
            scores = rule.softcap * torch.tanh(scores / rule.softcap)
        hidden = (distance < 0) | ((distance >= rule.window) & ~is_sink)
        return scores.masked_fill_(hidden, -torch.inf).softmax(-1) @ values


def _turn(x: Tensor, angles: tuple[Tensor, Tensor], places: Tensor) -> Tensor:
    """x [..., T, D] at `places` [T]"""
    cos, sin = angles
    return rotate(x, cos[places], sin[places])


def check_sinks(config: ModelConfig, window: int, num_sinks: int) -> None:
    if config.mla is not None or not config.has_rope:
        why = "rotates its keys before a cache has them" if config.mla else "has no rotary positions"
        raise InputError(f"sinks stand at other positions as the text goes on, but {config.architecture.name} {why}")
    if num_sinks + window > config.max_positions:
        raise InputError(
            f"a window of {window} and {num_sinks} sinks, but the model's context holds {config.max_positions}"
        )
