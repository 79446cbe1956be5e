"""`ShareCache`: lanes keep different tokens of each sequence, attend to their own, and merge the results by lse."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.attention.block_attention import PartialAttention, merge
from qbench.runtime.attention.rope import rotate
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.kv_storage import KVStorage
from qbench.runtime.caches.past import Past
from qbench.runtime.caches.places import Places
from qbench.runtime.caches.sequences import CacheConfig
from qbench.runtime.caches.share import NewTokens, Share


class Lanes(Protocol):
    """The lanes that keep the other shares."""

    def gather(self, x: Tensor) -> list[Tensor]:
        """x of every lane, in their order"""
        ...


class ShareCache(KVCache):
    """Every lane has the queries, keys and values of all new tokens.

    source  Lin et al. 2024 (Infinite-LLM), arXiv:2401.02669, section 4: DistAttention
    """

    def __init__(self, config: CacheConfig, places: Places[KVStorage], share: Share, lanes: Lanes) -> None:
        super().__init__(config, places)
        self.share, self._lanes = share, lanes

    def has_kernel_view(self, num_tokens: int) -> bool:
        return False

    def has_layer_views(self, num_tokens: int) -> bool:
        return False

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        past = self._past(layer, k.shape[2])
        if past.cu_seqlens is None:
            return self._merged(self._part(layer, (q, k, v), past, positions))
        parts = [
            self._part(layer, [x[:, :, columns] for x in (q, k, v)], one, positions[columns])
            for one, columns in past.each()
        ]
        out, lse = torch.cat([part.out for part in parts], 2), torch.cat([part.lse for part in parts], 2)
        return self._merged(PartialAttention(out, lse))

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        return self.attend(layer, rotate(q, *rope), rotate(k, *rope), v, positions)

    def _part(self, layer: int, new: Sequence[Tensor], past: Past, positions: Tensor) -> PartialAttention:
        """new  queries, keys and values of sequences of one length"""
        q, k, v = new
        return self.memories[layer].append_part(q, k, v, past, self.rules[layer], NewTokens(self.share, positions))

    def _merged(self, part: PartialAttention) -> Tensor:
        """Attention over the tokens of all lanes, in float32 in the order of the lanes; [B, H, T, D]"""
        of_lanes = self._lanes.gather(torch.cat([part.out, part.lse[..., None]], -1))
        return merge(*(PartialAttention(each[..., :-1], each[..., -1]) for each in of_lanes)).out

    def _ends(self, places: Places[KVStorage], num_tokens: int) -> np.ndarray:
        return self.share.count(self._new_lens(num_tokens))

    def mark(self) -> None:
        super().mark()
        for storage in self.memories:
            storage.mark()
