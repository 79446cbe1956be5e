"""`SlotTable`: the token in each slot of a sequence, in every layer, and its score."""

from typing import Self

import numpy as np
import torch
from torch import Tensor

NO_HOLE = -1


class SlotTable:
    """The data of one sequence that a policy needs. It has all layers together, so that a decode step handles them at
    once.

    held           [L] int64: slots in use
    holes          [L, G] int64: a slot in use whose token has been evicted, or NO_HOLE
    positions      [L, G, capacity] int64: places in the text, -1 in a slot without a token of its head
    score          [L, G, capacity] float32
    notes          [L, G] int64, as in `LayerState`
    tokens         [1, room] int64: token ids of the text
    num_prompt     tokens up to the end of the last forward pass of more than one
    last_eviction  tokens seen when a layer last evicted some
    """

    def __init__(self, num_layers: int, num_kv_heads: int) -> None:
        self.held = np.zeros(num_layers, dtype=np.int64)
        self.holes = torch.full((num_layers, num_kv_heads), NO_HOLE)
        self.positions = torch.zeros(num_layers, num_kv_heads, 0, dtype=torch.int64)
        self.score = torch.zeros(self.positions.shape)
        self.notes = torch.zeros(num_layers, num_kv_heads, dtype=torch.int64)
        self.tokens = torch.empty(1, 0, dtype=torch.int64)
        self.num_prompt = self.last_eviction = 0

    @property
    def longest(self) -> int:
        """Slots in use of the layer that has most."""
        return int(self.held.max())

    def longest_with(self, num_new: int) -> int:
        """`longest` after a forward pass that brings so many tokens, before it evicts."""
        return int(np.maximum(self.num_held + num_new, self.held).max())

    @property
    def num_held(self) -> np.ndarray:
        """[L] int64: tokens that are held"""
        return self.held - (self.holes[:, 0] != NO_HOLE).numpy()

    @property
    def num_evicted(self) -> int:
        """Slots of all layers that hold no token, up to the longest layer's end."""
        return int((self.longest - self.num_held).sum())

    @property
    def is_uniform(self) -> bool:
        """Whether all layers have as many slots, with a hole or without."""
        has_hole = self.holes[:, 0] != NO_HOLE
        return bool((self.held == self.held[0]).all() and (has_hole == has_hole[0]).all())

    def positions_of(self, layer: int, g: int) -> list[int]:
        """Ascending positions of the tokens of one head."""
        hole, held = int(self.holes[layer, g]), self.positions[layer, g, : self.held[layer]]
        return sorted(position for slot, position in enumerate(held.tolist()) if slot != hole and position >= 0)

    def see(self, tokens: Tensor, num_seen: int) -> None:
        """The tokens [T] come behind `num_seen` others."""
        end = num_seen + len(tokens)
        if end > self.tokens.shape[1]:
            room = max(end, 2 * self.tokens.shape[1])
            self.tokens = torch.nn.functional.pad(self.tokens, (0, room - self.tokens.shape[1]))
        self.tokens[0, num_seen:end] = tokens
        if len(tokens) > 1:
            self.num_prompt = end

    def place(self, layers: slice, total: int, positions: Tensor, holes: Tensor | None) -> None:
        """Enter new tokens with score 0.

        total      slots in use with them
        positions  [T] int64
        holes      [l, G]: the slots that the only new token takes; None: the last T of `total`
        """
        self._reserve(total)
        if holes is None:
            new = slice(total - len(positions), total)
            self.positions[layers, :, new] = positions
            self.score[layers, :, new] = 0
        else:
            self.positions[layers].scatter_(2, holes[..., None], int(positions[0]))
            self.score[layers].scatter_(2, holes[..., None], 0)
        self.held[layers] = total
        self.holes[layers] = NO_HOLE

    def _reserve(self, capacity: int) -> None:
        missing = capacity - self.positions.shape[2]
        if missing > 0:
            missing = max(missing, self.positions.shape[2])
            self.positions = torch.nn.functional.pad(self.positions, (0, missing))
            self.score = torch.nn.functional.pad(self.score, (0, missing))

    def compact(self, layer: int, keep: Tensor) -> None:
        """Move the slots `keep` [G, n] to the front; -1 leaves a slot without a token."""
        count = keep.shape[1]
        is_empty, keep = keep < 0, keep.clamp(min=0)
        for table, nothing in ((self.positions, -1), (self.score, 0)):
            table[layer, :, :count] = table[layer].gather(1, keep).masked_fill_(is_empty, nothing)
        self.held[layer] = count
        self.holes[layer] = NO_HOLE

    def trim(self) -> None:
        """Free entries behind the longest layer."""
        if self.positions.shape[2] > 2 * self.longest:
            self.positions = self.positions[..., : self.longest].clone()
            self.score = self.score[..., : self.longest].clone()

    def clear(self) -> None:
        """Forget all tokens."""
        self.__init__(*self.holes.shape)

    def copy(self) -> Self:
        other = type(self)(*self.holes.shape)
        other.held, other.holes = self.held.copy(), self.holes.clone()
        other.positions, other.score, other.notes = self.positions.clone(), self.score.clone(), self.notes.clone()
        other.tokens, other.num_prompt, other.last_eviction = self.tokens.clone(), self.num_prompt, self.last_eviction
        return other
