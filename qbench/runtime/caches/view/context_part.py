"""`ContextPart`: the tokens of a prompt's context that one lane of Star Attention computes by itself."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.prefill import BLOCK, BlockLists
from qbench.prefill.star import sees_anchor_and_own
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.kv_storage import KVStorage
from qbench.runtime.caches.storage.share import Share
from qbench.runtime.caches.view.view import QKV, View
from quant.models import AttentionRule


class ContextPart(View):
    """The anchor and the lane's own parts see each other in one layer at a time; the own ones are kept.

    share        whose blocks are the parts of the context
    batch        sequences
    num_tokens   of the context
    new_storage  (layer, sequences, slots) -> an empty storage, for the layer that runs
    positions    [n] int64: places in the text of the tokens that the lane computes, ascending; empty if it has no part
    own          [n] bool: which of them it keeps
    source       Acharya et al. 2024 (Star Attention), arXiv:2411.17116, section 2.1
    """

    def __init__(
        self, share: Share, batch: int, num_tokens: int, new_storage: Callable[[int, int, int], KVStorage]
    ) -> None:
        self.share, self.batch, self.num_tokens, self._new_storage = share, batch, num_tokens, new_storage
        every = torch.arange(num_tokens)
        is_own = share.owns(every)
        is_computed = is_own | (every < share.block) if is_own.any() else is_own
        self.positions, self.own = every[is_computed], is_own[is_computed]

    @property
    def in_kernels(self) -> bool:
        return False

    def num_slots(self, seq_lens: Any) -> Any:
        """Slots of the own tokens, also while the anchor is computed with them"""
        return self.share.count(np.full_like(seq_lens, self.num_tokens))

    @cached_property
    def lists(self) -> BlockLists:
        """Blocks that the computed tokens see, numbered without the gaps between parts"""
        parts = self.positions[::BLOCK] // self.share.block
        return BlockLists.of_mask(sees_anchor_and_own(parts)[None], len(self.positions), BLOCK)

    def attend(self, layer: int, storage: KVStorage, rule: AttentionRule, past: Past, new: QKV) -> Tensor:
        num_slots = len(self.positions)
        seen = self._new_storage(layer, self.batch, num_slots)
        computed = Past(np.arange(self.batch, dtype=np.int32)[:, None], np.full(self.batch, num_slots))
        q = new.append(seen, computed)
        self._own_of(new).append(storage, past)
        each = computed.sequences(q)
        return torch.stack([seen.attend_blocks(x[0], one, rule.scale, self.lists).out for one, x in each])

    def _own_of(self, new: QKV) -> QKV:
        cos_sin = None if new.rope is None else (new.rope[0][self.own], new.rope[1][self.own])
        return QKV(new.q[:, :, self.own], new.k[:, :, self.own], new.v[:, :, self.own], cos_sin)
