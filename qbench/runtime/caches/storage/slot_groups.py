"""`SlotGroups`: keys and values of one layer, in a KV format that encodes several tokens together, under a policy."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import chain
from math import ceil
from typing import cast

import numpy as np
import torch
from torch import Tensor

from qbench.policies import Observe
from qbench.runtime.attention.observed_weights import observed_weights
from qbench.runtime.attention.rope import rotate
from qbench.runtime.attention.sink_attention import sink_attention
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.grouped_storage import GroupedStorage, Side
from qbench.runtime.caches.storage.kv_storage import Far
from qbench.runtime.caches.storage.slot_side import SlotSide, held_bytes, order_of
from quant.kv.codec import Codec
from quant.models import AttentionRule
from quant.present import present


class SlotGroups(GroupedStorage):
    """A token has a slot, by which the cache knows it, and in each head a place, which decides who shares its scales.

        places   0 ... 31   32 ... 63   64 ... 70
                 group 0    group 1     floats, oldest first

    Tokens that a policy evicts after a prompt are gone before the others are encoded. A token that is evicted later may
    leave a gap in a group. The oldest float fills it, and the keys of this group are encoded again, from the 31 others
    as they are read. So their error grows with each eviction that changes a channel's range. Groups without a gap keep
    their bytes, and so do values, which are encoded token by token. The residual has as many recent tokens as without
    a policy.

    A sequence has one page, or several of a pool, as many as its bytes fill. The first one has all its tokens.

    Runs in torch; results and bytes are right, speed is not the aim.
    """

    by_sequence = True

    def pages_for(self, num_slots: int) -> int:
        num_heads, *widths = self.sizes
        most = held_bytes(self.format, num_slots, num_heads, (widths[0], widths[1]), is_bound=True)
        return ceil(most / (self.page_size * self.bytes_per_token))

    def free_page(self, page: int) -> None:
        self._pages.pop(page, None)

    def add_pages(self, num_pages: int) -> None:
        self.num_pages = num_pages

    def _side(self, codec: Codec, scale: Tensor | None) -> SlotSide:
        return SlotSide(self.format, codec, scale)

    def append(self, k: Tensor, v: Tensor, past: Past, slots: Tensor | None = None) -> None:
        self.finish(past)
        pairs = zip(past.sequences(k), past.sequences(v), strict=True)
        for b, ((one, keys), (_, values)) in enumerate(pairs):
            self._append(one, (keys, values), None if slots is None else slots[b, :, None])

    def _append(self, past: Past, new: tuple[Tensor, Tensor], hole: Tensor | None) -> None:
        """hole   [G, 1]: slot that the only new token takes from another; None: the last slots"""
        sides, first = self._of(past), past.num_slots - new[0].shape[2]
        held = sides[0].slots
        if held is not None:
            # The cache went back if there are later slots.
            stays = held < first if hole is None else held != hole
            if not stays.all():
                _arrange(sides, stays, num_new=0 if hole is None else 1)
        slots = torch.arange(first, past.num_slots).expand(new[0].shape[1], -1) if hole is None else hole
        for side, x in zip(sides, new, strict=True):
            side.add(x, slots)

    def append_attend(
        self, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor] | None, past: Past, rule: AttentionRule
    ) -> Tensor:
        if rope is not None:
            q, k = rotate(q, *rope), rotate(k, *rope)
        self.append(k, v, past)
        out, _ = self.attend(q, past, rule)
        self.finish(past)
        return out

    def attend(
        self, q: Tensor, past: Past, rule: AttentionRule, observe: Observe | None = None, far: Far | None = None
    ) -> tuple[Tensor, Tensor | Iterator[Tensor] | None]:
        assert observe is None or len(past.ends) == 1
        sinks = [None] * len(past.ends)
        if far is not None:
            sinks = [Far(far.num_sinks, its) for _, its in past.sequences(far.q)]
        found = [self._attend(*its, rule, observe, one) for its, one in zip(past.sequences(q), sinks, strict=True)]
        return torch.cat([out for out, _ in found], dim=0 if past.cu_seqlens is None else 2), found[0][1]

    def _attend(
        self, past: Past, q: Tensor, rule: AttentionRule, observe: Observe | None, far: Far | None
    ) -> tuple[Tensor, Tensor | Iterator[Tensor] | None]:
        """`attend` of one sequence: queries that see the same tokens encoded are a run."""
        end, outs, weights = past.num_slots, [], []
        start = end - q.shape[2]
        first = 0 if observe is None or observe.queries is None else max(0, q.shape[2] - observe.queries)
        for run in self.format.uniform_runs(start, end):
            keys, values = (side.seen(run[1]) for side in self._of(past))
            its = slice(run[0] - start, run[1] - start)
            if far is None:
                outs.append(self.attention(q[:, :, its], keys, values, rule))
            else:
                places, far_q = torch.arange(run[1]), far.q[:, :, its]
                outs.append(sink_attention(q[:, :, its], far_q, keys, values, places, far.num_sinks, rule))
            if observe is not None and first < its.stop:
                queries = q[:, :, max(first, its.start) : its.stop]
                weights.append(observed_weights(queries, keys, rule, replace(observe, queries=None)))
        return torch.cat(outs, dim=2), _joined(weights, end, observe)

    def finish(self, past: Past) -> None:
        for side in chain.from_iterable(self._slot_sides(page) for page in past.block_table[:, 0].tolist()):
            side.finish()

    def compact(self, past: Past, keep: Tensor) -> None:
        for slots, page in zip(keep, past.block_table[:, 0].tolist(), strict=True):
            sides = self._slot_sides(page)
            held = present(sides[0].slots)
            stays = torch.zeros(held.shape, dtype=torch.bool).scatter(1, slots, value=True)  # by slot
            _arrange(sides, stays.gather(1, held))
            for side in sides:
                side.slots = (stays.cumsum(1) - 1).gather(1, present(side.slots))

    def read(self, past: Past) -> tuple[Tensor, Tensor]:
        """As they will be read: of a prompt that is not encoded yet, the floats."""
        pages = past.block_table[:, 0].tolist()
        found = [[side.by_slot(side.read()) for side in self._slot_sides(page)] for page in pages]
        keys, values = (torch.cat(side) for side in zip(*found, strict=True))
        return keys, values

    def save_page(self, page: int) -> list[Side]:
        return [copy(side) for side in self._pages.get(page, [])]

    def load_page(self, page: int, saved: object) -> None:
        assert isinstance(saved, list)
        if saved:
            self._pages[page] = [copy(side) for side in saved]  # tensors are replaced, never changed
        else:
            self.free_page(page)

    def check_truncate(self, block_table: np.ndarray, after: np.ndarray) -> None:
        """`append` drops the tokens in later slots."""

    def truncate(self, block_table: np.ndarray, before: np.ndarray, after: np.ndarray) -> None:
        """`append` drops the tokens in later slots."""

    def _of(self, past: Past) -> list[SlotSide]:
        return self._slot_sides(int(past.block_table[0, 0]))

    def _slot_sides(self, page: int) -> list[SlotSide]:
        return cast("list[SlotSide]", self._sides(page))


def _arrange(sides: Sequence[SlotSide], stays: Tensor, num_new: int = 0) -> None:
    """Forget the tokens of some places, before `num_new` others come.

    stays   [G, n] bool: whether the token of a place stays
    """
    fmt, encoded, count = sides[0].format, sides[0].encoded, int(stays[0].sum())
    target = min(fmt.num_encoded(count + num_new), count) // fmt.token_group * fmt.token_group
    order = torch.stack([order_of(each, encoded, target, fmt.token_group) for each in stays])
    for side in sides:
        side.arrange(order, target)


def _joined(
    weights: Sequence[Tensor | Iterator[Tensor] | None], num_slots: int, observe: Observe | None
) -> Tensor | Iterator[Tensor] | None:
    """The weights of all runs, over all slots."""
    if observe is None:
        return None
    blocks = (block for run in weights for block in ([run] if isinstance(run, Tensor) else present(run)))
    padded = (torch.nn.functional.pad(block, (0, num_slots - block.shape[-1])) for block in blocks)
    return padded if observe.each else torch.stack(list(padded)).sum(0)
