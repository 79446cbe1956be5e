"""`SinkView`: a window, and the first tokens of the text, at the positions that they have in the cache."""

import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.policies.policy import Span
from qbench.runtime.attention.rope import far_rotation, inverse_frequencies, rotate
from qbench.runtime.attention.rotations import Rotations
from qbench.runtime.attention.sink_attention import sink_attention
from qbench.runtime.caches.sequences import Sequences
from qbench.runtime.caches.step import Past, Step
from qbench.runtime.caches.storage.kv_storage import Far, KVStorage
from qbench.runtime.caches.view.kernel_view import SinkAngles
from qbench.runtime.caches.view.view import QKV, View
from quant.models import AttentionRule, ModelConfig
from quant.present import present


def turns_with_text(config: ModelConfig) -> bool:
    """Whether rotations change once the text is long, so that keys cannot be rotated when they are stored."""
    ropes = [rope for rope in (config.rope, config.local_rope) if rope is not None]
    return any(rope.changes_at is not None for rope in ropes)


class SinkView(View):
    """A query sees the last `window` tokens, of a layer with a smaller window fewer, and the first `sinks`.

    Positions are those in the cache: with S sinks and a window of N no token is further from a sink than S + N - 1,
    however long the text is, so that it may be longer than the model's context.

    A token in the window is as far from a query in the text as in the cache, so that keys are stored rotated by their
    place in the text. Sinks stay at the beginning, and a query meets them rotated by its place in the cache. If
    rotations change with the text, keys are stored as they are and rotated when they are read; that needs storages in
    torch.

    raises   InputError if positions are not rotary, or keys are rotated before they reach a cache
    source   Xiao et al. 2023, arXiv:2309.17453, section 3.2
    """

    max_seq_len = sys.maxsize

    def __init__(self, config: ModelConfig, span: Span) -> None:
        self.num_sinks = span.sinks
        self.most_before = span.num_tokens - 1  # kept tokens before a query
        self._rope_of = [int(config.rope_of(layer) is config.local_rope) for layer in range(config.num_layers)]
        self._turns_when_read = turns_with_text(config)
        self._rotations = Rotations(config)
        ropes = [config.rope, config.local_rope] if config.local_rope else [config.rope]
        self._frequencies = [(inverse_frequencies(rope, config.rope_dim), rope.rotation_scale) for rope in ropes]

    @property
    def in_kernels(self) -> bool:
        return not self._turns_when_read

    def next_position(self, seq_lens: Any) -> Any:
        return min(seq_lens, self.most_before) if isinstance(seq_lens, int) else np.minimum(seq_lens, self.most_before)

    def begin(self, step: Step, sequences: Sequences) -> None:
        if self._turns_when_read:
            return
        seq_lens = sequences.seq_lens
        moved = seq_lens - self.next_position(seq_lens)  # [B]: how much later in the text than in the cache
        moved = int(moved[0]) if step.counts is None else torch.from_numpy(np.repeat(moved, step.counts))
        places = step.positions + moved
        self._near = self._angles(places)
        self._far = self._angles(places.clamp(max=self.most_before))

    def _angles(self, places: Tensor) -> list[tuple[Tensor, Tensor]]:
        """cos and sin [T, D] for each rope of the model"""
        return [far_rotation(frequency, places, scale) for frequency, scale in self._frequencies]

    def sink_angles(self, layer: int) -> SinkAngles:
        near, far = ([x.numpy() for x in angles[self._rope_of[layer]]] for angles in (self._near, self._far))
        return SinkAngles(self.num_sinks, (near[0], near[1]), (far[0], far[1]))

    def attend(self, layer: int, storage: KVStorage, rule: AttentionRule, past: Past, new: QKV) -> Tensor:
        q, k, v = new.q, new.k, new.v
        if new.rope is None:
            raise NotImplementedError("keys that are rotated already; expected rope_attend")
        if self._turns_when_read:
            storage.append(k, v, past)
            if past.cu_seqlens is None:
                return self._turned_attention(layer, storage, rule, past, q)
            parts = [self._turned_attention(layer, storage, rule, one, q[:, :, its]) for one, its in past.each()]
            return torch.cat(parts, dim=2)
        near = storage.rope_append(q, k, v, self._near[self._rope_of[layer]], past)
        far = Far(self.num_sinks, rotate(q, *self._far[self._rope_of[layer]]))
        out = storage.attend(near, past, rule, far=far)[0]
        storage.finish(past)
        return out

    def _turned_attention(self, layer: int, storage: KVStorage, rule: AttentionRule, past: Past, q: Tensor) -> Tensor:
        """Over keys that are not rotated yet: q [B, H, T, D] as projected -> as q"""
        num_new, seq_len = q.shape[2], past.num_slots - q.shape[2]
        start = self.next_position(seq_len)
        angles = present(self._rotations(0, start + num_new)[self._rope_of[layer]])
        tokens = past.slots_there(storage.page_size)  # [S]
        # Tokens before the first query's window are hidden, so that their positions do not count.
        at = torch.where(tokens < self.num_sinks, tokens, (tokens - seq_len + start).clamp(min=0))
        keys, values = storage.read(past)
        of_queries = torch.arange(start, start + num_new)
        near, far = (_turn(q, angles, seen) for seen in (of_queries, of_queries.clamp(max=self.most_before)))
        keys = _turn(keys, angles, at)
        return sink_attention(near, far, keys, values, tokens, self.num_sinks, rule)


def _turn(x: Tensor, angles: tuple[Tensor, Tensor], places: Tensor) -> Tensor:
    """x [..., T, D] at `places` [T]"""
    cos, sin = angles
    return rotate(x, cos[places], sin[places])
