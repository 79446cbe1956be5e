"""`ContextPart`: the tokens of a prompt's context that one lane of Star Attention computes by itself."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from qbench.prefill import BLOCK, BlockLists
from qbench.prefill.star import sees_anchor_and_own
from qbench.runtime.caches.cache import Apart
from qbench.runtime.caches.kv_storage import KVStorage
from qbench.runtime.caches.past import Past
from qbench.runtime.caches.sequences import CacheConfig
from qbench.runtime.caches.share import Share
from qbench.runtime.caches.view import QKV, AttendQKV, Stores


class ContextPart(AttendQKV, Apart):
    """Keys and values of the anchor and of the lane's own parts, of one layer at a time; the own ones are kept.

    share       whose blocks are the parts of the context
    num_tokens  of the context
    stores      gets the own tokens
    new_storage (layer, sequences, slots) -> an empty storage, for the layer that runs
    source      Acharya et al. 2024 (Star Attention), arXiv:2411.17116, section 2.1
    """

    def __init__(
        self,
        config: CacheConfig,
        share: Share,
        num_tokens: int,
        stores: Stores,
        new_storage: Callable[[int, int, int], KVStorage],
    ) -> None:
        super().__init__(config, stores.batch)
        self.share, self.num_tokens, self._stores, self._new_storage = share, num_tokens, stores, new_storage
        every = torch.arange(num_tokens)
        is_own = share.owns(every)
        is_computed = is_own | (every < share.block) if is_own.any() else is_own
        self.positions, self.own = every[is_computed], is_own[is_computed]

    @cached_property
    def lists(self) -> BlockLists:
        """Blocks that the computed tokens see, numbered without the gaps between parts"""
        parts = self.positions[::BLOCK] // self.share.block
        return BlockLists.of_mask(sees_anchor_and_own(parts)[None], len(self.positions), BLOCK)

    def attend_qkv(self, layer: int, new: QKV) -> Tensor:
        num_slots = len(self.positions)
        storage = self._new_storage(layer, self.batch, num_slots)
        past = Past(np.arange(self.batch, dtype=np.int32)[:, None], np.full(self.batch, num_slots))
        q, scale = new.append(storage, past), self.rules[layer].scale
        self._own_of(new).append(self._stores.memories[layer], self._stores.past(layer, self.num_tokens))
        return torch.stack([storage.attend_blocks(x[0], one, scale, self.lists).out for one, x in past.sequences(q)])

    def _own_of(self, new: QKV) -> QKV:
        cos_sin = None if new.rope is None else (new.rope[0][self.own], new.rope[1][self.own])
        return QKV(new.q[:, :, self.own], new.k[:, :, self.own], new.v[:, :, self.own], cos_sin)

    @property
    def bytes_per_token(self) -> float:
        return 0.0  # those of `stores`

    @property
    def size_bytes(self) -> int:
        return 0
