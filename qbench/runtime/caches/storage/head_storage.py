"""`HeadStorage`: keys and values of one layer whose KV heads have lengths of their own."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from qbench.policies import Observe
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.kv_storage import Far, KVStorage, held_tokens
from quant.models import AttentionRule


class HeadStorage(KVStorage):
    """One storage for each KV head of each sequence, so that memory follows the mean length, not the longest one.

    A sequence has one page. Its slots are those of its longest head. A shorter head has no token in some of them:

        slots      0 1 2 3 4 5
        head 0     a b c d e f    its storage holds a b c d e f
        head 1     a d - - e f    its storage holds a d e f

    heads   [B][G] storages of one sequence with one head
    held    [B] of [G, slots] bool: slots that hold a token; None: no tokens yet
    """

    def __init__(self, heads: Sequence[Sequence[KVStorage]], held: Sequence[Tensor] | None = None) -> None:
        self.heads, self.num_pages = heads, len(heads)
        self.bytes_per_token = sum(head.bytes_per_token for head in heads[0])
        self._held = [torch.zeros(len(row), 0, dtype=torch.bool) for row in heads] if held is None else list(held)

    @property
    def page_size(self) -> int:
        return max(head.page_size for row in self.heads for head in row)

    @property
    def size_bytes(self) -> int:
        return sum(head.size_bytes for row in self.heads for head in row)

    @property
    def lengths(self) -> Tensor:
        """[B, G] int64: tokens that each head holds"""
        return torch.stack([held.sum(1) for held in self._held])

    def resize(self, page_size: int) -> None:
        """`append` and `compact` make each head as long as it must be."""

    def add_pages(self, num_pages: int) -> None:
        raise NotImplementedError("heads with lengths of their own have no pages to share")

    def copy_page(self, source: int, target: int) -> None:
        raise NotImplementedError("heads with lengths of their own have no pages to share")

    def save_page(self, page: int) -> tuple[Tensor, list[object]]:
        return self._held[page].clone(), [head.save() for head in self.heads[page]]

    def load_page(self, page: int, saved: tuple[Tensor, list[object]]) -> None:
        held, heads = saved
        self._held[page] = held.clone()
        for head, one in zip(self.heads[page], heads, strict=True):
            head.load(one)

    def append(self, k: Tensor, v: Tensor, past: Past, slots: Tensor | None = None) -> None:
        assert slots is None
        num_new = k.shape[2]
        for row, b in self._sequences(past):
            held = self._held[b][:, : past.num_slots - num_new]
            for g, (head, length) in enumerate(zip(self.heads[b], held.sum(1).tolist(), strict=True)):
                if length + num_new > head.page_size:
                    head.resize(held_tokens(length + num_new))
                head.append(k[row, g : g + 1], v[row, g : g + 1], _of_length(length + num_new))
            self._held[b] = torch.nn.functional.pad(held, (0, num_new), value=True)

    def attend(
        self, q: Tensor, past: Past, rule: AttentionRule, observe: Observe | None = None, far: Far | None = None
    ) -> tuple[Tensor, Tensor | Iterator[Tensor] | None]:
        assert far is None
        outs, weights = [], []
        for row, b in self._sequences(past):
            groups = q[row].chunk(len(self.heads[b]), 1)  # [1, H / G, T, D] each
            lengths = self._held[b].sum(1).tolist()
            found = [
                head.attend(group, _of_length(length), rule, observe)
                for head, length, group in zip(self.heads[b], lengths, groups, strict=True)
            ]
            outs.append(torch.cat([out for out, _ in found], 1))
            weights.append([each for _, each in found])
        return torch.cat(outs), self._in_slots(past, weights, observe)

    def _in_slots(self, past: Past, weights: list[list], observe: Observe | None) -> Tensor | Iterator[Tensor] | None:
        """The weights that each head's tokens received, in the slots of these tokens."""
        held = torch.stack([self._held[b] for _, b in self._sequences(past)])  # [B, G, S]
        if observe is None:
            return None
        if not observe.each:
            return spread([each for row in weights for each in row], held)
        blocks = zip(*(each for row in weights for each in row), strict=True)  # B * G tensors for some queries
        return (spread(block, held) for block in blocks)

    def finish(self, past: Past) -> None:
        for _, b in self._sequences(past):
            for head, length in zip(self.heads[b], self._held[b].sum(1).tolist(), strict=True):
                head.finish(_of_length(length))

    def compact(self, past: Past, keep: Tensor) -> None:
        for row, b in self._sequences(past):
            stays = keep[row][0] >= 0  # [G, n]
            slots = self._held[b].cumsum(1) - 1  # [G, S]: slot -> place in the head's storage
            for g, head in enumerate(self.heads[b]):
                places = slots[g, keep[row][0, g, stays[g]]]
                length = int(self._held[b][g].sum())
                if len(places) < length:
                    head.compact(_of_length(length), places[None, None])
                    head.resize(held_tokens(len(places)))
            self._held[b] = stays

    def read(self, past: Past) -> tuple[Tensor, Tensor]:
        """In slots without a token of their head all zeros."""
        sequences = [b for _, b in self._sequences(past)]
        held = torch.stack([self._held[b] for b in sequences])[..., : past.num_slots]  # [B, G, S]
        found = [
            head.read(_of_length(length))
            for b, row in zip(sequences, held.sum(2).tolist(), strict=True)
            for head, length in zip(self.heads[b], row, strict=True)
        ]
        keys, values = (spread([each.transpose(2, 3) for each in side], held) for side in zip(*found, strict=True))
        return keys.transpose(2, 3), values.transpose(2, 3)

    def _sequences(self, past: Past) -> list[tuple[slice, int]]:
        """Each sequence's place in the tensors of a call, and its number."""
        return [(slice(row, row + 1), b) for row, b in enumerate(past.block_table[:, 0].tolist())]


def _of_length(num_slots: int) -> Past:
    """The only page of a storage of one sequence."""
    return Past(np.zeros((1, 1), dtype=np.int32), np.array([num_slots]))


def spread(parts: Sequence[Tensor], held: Tensor) -> Tensor:
    """Entries of the tokens of each head, in their slots; 0 in the others.

    parts    B * G tensors [1, 1, ..., n], where n is the head's number of tokens
    held     [B, G, S] bool
    returns  [B, G, ..., S]
    """
    out = parts[0].new_zeros(*held.shape[:2], *parts[0].shape[2:-1], held.shape[2])
    for row, is_held, part in zip(out.flatten(0, 1), held.flatten(0, 1), parts, strict=True):
        row[..., is_held] = part[0, 0]
    return out
