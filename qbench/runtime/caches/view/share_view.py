"""`ShareView`: lanes keep different tokens of each sequence, attend to their own, and merge the results by lse.

`StarView`: lanes compute parts of a prompt's context apart.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from qbench.prefill.star import Star
from qbench.runtime.attention.block_attention import PartialAttention, concat, merge
from qbench.runtime.attention.rope import rotate
from qbench.runtime.caches.sequences import CacheConfig, Sequences
from qbench.runtime.caches.step import Past, Step
from qbench.runtime.caches.storage.kv_storage import KVStorage
from qbench.runtime.caches.storage.share import NewTokens, Share
from qbench.runtime.caches.view.context_part import ContextPart
from qbench.runtime.caches.view.view import QKV, View
from qbench.runtime.prefill_tally import PrefillTally
from quant.models import AttentionRule


class Lanes(Protocol):
    """The lanes that keep the other shares."""

    def gather(self, x: Tensor) -> list[Tensor]:
        """x of every lane, in their order"""
        ...


class ShareView(View):
    """Every lane has the queries, keys and values of all new tokens.

    source  Lin et al. 2024 (Infinite-LLM), arXiv:2401.02669, section 4: DistAttention
    """

    def __init__(self, share: Share, lanes: Lanes) -> None:
        self.share, self._lanes = share, lanes

    @property
    def in_kernels(self) -> bool:
        return False

    def num_slots(self, seq_lens: Any) -> Any:
        return self.share.count(seq_lens)

    def begin(self, step: Step, sequences: Sequences) -> None:
        self._positions = step.positions

    def attend(self, layer: int, storage: KVStorage, rule: AttentionRule, past: Past, new: QKV) -> Tensor:
        q, k, v = new.q, new.k, new.v
        if new.rope is not None:
            q, k = rotate(q, *new.rope), rotate(k, *new.rope)
        if past.cu_seqlens is None:
            return self._merged(self._part(storage, rule, past, (q, k, v), self._positions))
        parts = [
            self._part(storage, rule, one, (q[:, :, its], k[:, :, its], v[:, :, its]), self._positions[its])
            for one, its in past.each()
        ]
        return self._merged(concat(parts, 2))

    def _part(
        self,
        storage: KVStorage,
        rule: AttentionRule,
        past: Past,
        new: tuple[Tensor, Tensor, Tensor],
        positions: Tensor,
    ) -> PartialAttention:
        """new  queries, keys and values of sequences of one length"""
        return storage.append_part(*new, past, rule, NewTokens(self.share, positions))

    def _merged(self, part: PartialAttention) -> Tensor:
        """Attention over the tokens of all lanes, in float32 in the order of the lanes; [B, H, T, D]"""
        of_lanes = self._lanes.gather(torch.cat([part.out, part.lse[..., None]], -1))
        return merge(*(PartialAttention(each[..., :-1], each[..., -1]) for each in of_lanes)).out


class StarView(ShareView):
    """The parts of a prompt go to the lanes in turn, and so do the tokens after it, in blocks of the same size.

    new_storage  as of `ContextPart`
    tally        counts computed blocks, as one rank would compute them
    """

    def __init__(
        self,
        config: CacheConfig,
        pattern: Star,
        share: Share,
        lanes: Lanes,
        tally: PrefillTally,
        new_storage: Callable[[int, int, int], KVStorage],
    ) -> None:
        super().__init__(share, lanes)
        self._config = config
        self.pattern, self._tally, self._new_storage = pattern, tally, new_storage

    def begin_apart(self, batch: int, num_tokens: int) -> ContextPart | None:
        self.share = replace(self.share, block=self.pattern.part_tokens(num_tokens))
        if num_tokens > 1:
            for _ in range(self._config.num_layers * batch):
                self._tally.add(self.pattern.lists_of(num_tokens).share)
        num_context = self.pattern.num_context(num_tokens)
        if not num_context:
            return None
        return ContextPart(self.share, batch, num_context, self._new_storage)
