"""`ShareView`: lanes keep different tokens of each sequence, attend to their own, and merge the results by lse."""

from typing import Any, Protocol

import torch
from torch import Tensor

from qbench.runtime.attention.block_attention import PartialAttention, concat, merge
from qbench.runtime.attention.rope import rotate
from qbench.runtime.caches.kv_storage import KVStorage
from qbench.runtime.caches.past import Past
from qbench.runtime.caches.sequences import Sequences
from qbench.runtime.caches.share import NewTokens, Share
from qbench.runtime.caches.step import Step
from qbench.runtime.caches.view import QKV, View
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
