"""`SlotTable`: the token in each slot of each layer, and its score."""

from typing import Self

import numpy as np
import torch
from torch import Tensor

NO_HOLE = -1


class SlotTable:
    """All layers together, so that a decode step handles them in one call.

    held       [L, B] int64: slots in use
    holes      [L, B, G] int64: a slot in use whose token has been evicted, or NO_HOLE
    positions  [L, B, G, capacity] int64: places in the text, -1 in a slot without a token of its head
    score      [L, B, G, capacity] float32
    notes      [L, B, G] int64, as in `LayerState`
    """

    def __init__(self, num_layers: int, batch: int, num_kv_heads: int) -> None:
        self.held = np.zeros((num_layers, batch), dtype=np.int64)
        self.holes = torch.full((num_layers, batch, num_kv_heads), NO_HOLE)
        self.positions = torch.zeros(num_layers, batch, num_kv_heads, 0, dtype=torch.int64)
        self.score = torch.zeros(self.positions.shape)
        self.notes = torch.zeros(num_layers, batch, num_kv_heads, dtype=torch.int64)

    @property
    def num_held(self) -> np.ndarray:
        """[L, B] int64: tokens that are held"""
        return self.held - self.has_hole

    @property
    def has_hole(self) -> np.ndarray:
        """[L, B] bool"""
        return (self.holes[..., 0] != NO_HOLE).numpy()

    def positions_of(self, layer: int, b: int, g: int) -> list[int]:
        """Ascending positions of the tokens of one head."""
        hole, held = int(self.holes[layer, b, g]), self.positions[layer, b, g, : self.held[layer, b]]
        return sorted(position for slot, position in enumerate(held.tolist()) if slot != hole and position >= 0)

    def is_uniform(self, layers: slice) -> bool:
        """Whether all sequences have as many slots in these layers, with a hole or without."""
        held, has_hole = self.held[layers], self.has_hole[layers]
        return bool((held == held[0, 0]).all() and (has_hole == has_hole[0, 0]).all())

    def place(self, layers: slice, which: slice, total: int, positions: Tensor, holes: Tensor | None) -> None:
        """Enter new tokens with score 0.

        total      slots in use with them
        positions  [T] int64
        holes      [l, b, G]: the slots that the only new token takes; None: the last T of `total`
        """
        self._reserve(total)
        if holes is None:
            new = slice(total - len(positions), total)
            self.positions[layers, which, :, new] = positions
            self.score[layers, which, :, new] = 0
        else:
            self.positions[layers, which].scatter_(3, holes[..., None], int(positions[0]))
            self.score[layers, which].scatter_(3, holes[..., None], 0)
        self.held[layers, which] = total
        self.holes[layers, which] = NO_HOLE

    def _reserve(self, capacity: int) -> None:
        missing = capacity - self.positions.shape[3]
        if missing > 0:
            missing = max(missing, self.positions.shape[3])
            self.positions = torch.nn.functional.pad(self.positions, (0, missing))
            self.score = torch.nn.functional.pad(self.score, (0, missing))

    def compact(self, layer: int, which: slice, keep: Tensor) -> None:
        """Move the slots `keep` [b, G, n] to the front; -1 leaves a slot without a token."""
        count = keep.shape[2]
        is_empty, keep = keep < 0, keep.clamp(min=0)
        for table, nothing in ((self.positions, -1), (self.score, 0)):
            table[layer, which, :, :count] = table[layer, which].gather(2, keep).masked_fill_(is_empty, nothing)
        self.held[layer, which] = count
        self.holes[layer, which] = NO_HOLE

    def trim(self) -> None:
        """Free entries behind the longest layer."""
        most = int(self.held.max())
        if self.positions.shape[3] > 2 * most:
            self.positions = self.positions[..., :most].clone()
            self.score = self.score[..., :most].clone()

    def copy(self) -> Self:
        other = type(self)(*self.holes.shape)
        other.held, other.holes = self.held.copy(), self.holes.clone()
        other.positions, other.score, other.notes = self.positions.clone(), self.score.clone(), self.notes.clone()
        return other
