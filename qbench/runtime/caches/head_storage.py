"""`HeadStorage`: keys and values of one layer whose KV heads have lengths of their own."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from qbench.policies import Observe
from qbench.runtime.caches.kv_storage import KVStorage
from quant.models import AttentionRule

BLOCK = 16  # a head's storage has room for a multiple of so many tokens
_ALL = slice(None)


class HeadStorage(KVStorage):
    """One storage for each KV head of each sequence, so that memory follows the mean length, not the longest one.

    The slots of a sequence are those of its longest head. A shorter head has no token in some of them:

        slots      0 1 2 3 4 5
        head 0     a b c d e f    its storage holds a b c d e f
        head 1     a d - - e f    its storage holds a d e f

    heads   [B][G] storages of one sequence with one head
    """

    def __init__(self, heads: Sequence[Sequence[KVStorage]]) -> None:
        self.heads = heads
        self._held = [torch.zeros(len(row), 0, dtype=torch.bool) for row in heads]  # [B] of [G, slots]

    @property
    def capacity(self) -> int:
        return max(head.capacity for row in self.heads for head in row)

    @property
    def size_bytes(self) -> int:
        return sum(head.size_bytes for row in self.heads for head in row)

    @property
    def lengths(self) -> Tensor:
        """[B, G] int64: tokens that each head holds"""
        return torch.stack([held.sum(1) for held in self._held])

    def reserve(self, capacity: int) -> None:
        """`append` makes room in each head."""

    def trim(self, num_held: int) -> None:
        """`compact` frees memory of each head."""

    def append(self, which: slice, num_held: int, k: Tensor, v: Tensor, slots: Tensor | None = None) -> None:
        assert slots is None
        num_new = k.shape[2]
        for b, one in self._sequences(which):
            held = self._held[b][:, :num_held]
            for g, (head, length) in enumerate(zip(self.heads[b], held.sum(1).tolist(), strict=True)):
                head.reserve(-(-(length + num_new) // BLOCK) * BLOCK)
                head.append(_ALL, length, k[one, g : g + 1], v[one, g : g + 1])
            self._held[b] = torch.nn.functional.pad(held, (0, num_new), value=True)

    def attend(
        self, which: slice, num_held: int, q: Tensor, rule: AttentionRule, observe: Observe | None
    ) -> tuple[Tensor, Tensor | Iterator[Tensor] | None]:
        outs, weights = [], []
        for b, one in self._sequences(which):
            groups = q[one].chunk(len(self.heads[b]), 1)  # [1, H / G, T, D] each
            lengths = self._held[b].sum(1).tolist()
            found = [
                head.attend(_ALL, length, group, rule, observe)
                for head, length, group in zip(self.heads[b], lengths, groups, strict=True)
            ]
            outs.append(torch.cat([out for out, _ in found], 1))
            weights.append([each for _, each in found])
        return torch.cat(outs), self._in_slots(which, weights, observe)

    def _in_slots(self, which: slice, weights: list[list], observe: Observe | None) -> Tensor | Iterator[Tensor] | None:
        """The weights that each head's tokens received, in the slots of these tokens."""
        held = torch.stack(self._held[which])  # [B, G, S]
        if observe is None:
            return None
        if not observe.each:
            return _spread([each for row in weights for each in row], held)
        blocks = zip(*(each for row in weights for each in row), strict=True)  # B * G tensors for some queries
        return (_spread(block, held) for block in blocks)

    def compact(self, which: slice, num_held: int, keep: Tensor) -> None:
        for b, one in self._sequences(which):
            stays = keep[one][0] >= 0  # [G, n]
            slots = self._held[b].cumsum(1) - 1  # [G, S]: slot -> place in the head's storage
            for g, head in enumerate(self.heads[b]):
                places = slots[g, keep[one][0, g, stays[g]]]
                length = int(self._held[b][g].sum())
                if len(places) < length:
                    head.compact(_ALL, length, places[None, None])
                    head.trim(-(-len(places) // BLOCK) * BLOCK)
            self._held[b] = stays

    def read(self, which: slice, num_held: int) -> tuple[Tensor, Tensor]:
        """In slots without a token of their head all zeros."""
        held = torch.stack(self._held[which])[..., :num_held]  # [B, G, S]
        lengths = held.sum(2).tolist()
        found = [
            head.read(_ALL, length)
            for (b, _), row in zip(self._sequences(which), lengths, strict=True)
            for head, length in zip(self.heads[b], row, strict=True)
        ]
        keys, values = (_spread([each.transpose(2, 3) for each in side], held) for side in zip(*found, strict=True))
        return keys.transpose(2, 3), values.transpose(2, 3)

    def save(self) -> object:
        return [held.clone() for held in self._held], [[head.save() for head in row] for row in self.heads]

    def load(self, saved: object) -> None:
        assert isinstance(saved, tuple)
        held, heads = saved
        self._held = [each.clone() for each in held]
        for row, saved_row in zip(self.heads, heads, strict=True):
            for head, one in zip(row, saved_row, strict=True):
                head.load(one)

    def _sequences(self, which: slice) -> list[tuple[int, slice]]:
        """Each sequence, and where it is in tensors of the sequences `which`."""
        return [(b, slice(row, row + 1)) for row, b in enumerate(range(*which.indices(len(self.heads))))]


def _spread(parts: Sequence[Tensor], held: Tensor) -> Tensor:
    """Entries of the tokens of each head, in their slots; 0 in the others.

    parts    B * G tensors [1, 1, ..., n], where n is the head's number of tokens
    held     [B, G, S] bool
    returns  [B, G, ..., S]
    """
    out = parts[0].new_zeros(*held.shape[:2], *parts[0].shape[2:-1], held.shape[2])
    for row, is_held, part in zip(out.flatten(0, 1), held.flatten(0, 1), parts, strict=True):
        row[..., is_held] = part[0, 0]
    return out
