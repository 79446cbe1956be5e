"""`DeviceHeads`: keys and values on a device of one layer whose KV heads have lengths of their own."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from gpu_kernels.decode.pages import Pages
from qbench.runtime.attention.observed_weights import query_weights
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.head_storage import spread
from qbench.runtime.device.place import Place
from qbench.runtime.device.storage import DeviceStorage
from quant.models import AttentionRule


class DeviceHeads(DeviceStorage):
    """Each head has its tokens at the front of the pages, without gaps. Pages follow the longest head.

    The policy's slots of a sequence are those of `HeadStorage`: some have no token of a shorter head.

    held   [B] of [G, slots] bool: slots that hold a token
    """

    def __init__(self, pages: Pages, layer: int, batch: int, place: Place, num_heads: int) -> None:
        super().__init__(pages, layer, batch, place)
        self.held = [torch.zeros(num_heads, 0, dtype=torch.bool) for _ in range(batch)]

    def take(self, ends: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """[B, G]: tokens of each head"""
        for b, (end, count) in enumerate(zip(ends.tolist(), counts.tolist(), strict=True)):
            held = self.held[b][:, : end - count]
            self.held[b] = torch.nn.functional.pad(held, (0, count), value=True)
        return np.stack([held.sum(1).numpy() for held in self.held])

    def mass_in_slots(self, b: int, end: int, mass: Tensor) -> Tensor:
        lengths = self.held[b].sum(1).tolist()
        rows = [row[None, None, :length] for row, length in zip(mass[b], lengths, strict=True)]
        return spread(rows, self.held[b][None])

    def weights_in_slots(self, b: int, end: int, queries: Tensor, rule: AttentionRule) -> Iterator[Tensor]:
        lengths = self.held[b].sum(1).tolist()
        keys, _ = self._dense(b, max(lengths))
        groups = queries.chunk(len(lengths), 1)  # [1, H / G, T, D] each
        of_heads = [
            query_weights(group, keys[:, g : g + 1, :length], rule)
            for g, (group, length) in enumerate(zip(groups, lengths, strict=True))
        ]
        return (spread(block, self.held[b][None]) for block in zip(*of_heads, strict=True))

    def compact(self, past: Past, keep: Tensor) -> None:
        b, (kept,) = int(past.block_table[0, 0]), keep  # [G, n]
        stays = kept >= 0
        places = self.held[b].cumsum(1) - 1  # [G, slots]: slot -> place among the tokens of its head
        where = places.gather(1, kept.clamp(min=0)).masked_fill(~stays, -1)
        super().compact(past, where[None])
        self.held[b] = stays

    def read(self, past: Past) -> tuple[Tensor, Tensor]:
        """In slots without a token of their head all zeros."""
        b = int(past.block_table[0, 0])
        lengths = self.held[b].sum(1).tolist()
        keys, values = (
            spread(
                [side[:, g : g + 1, :length].transpose(2, 3) for g, length in enumerate(lengths)], self.held[b][None]
            )
            for side in self._dense(b, max(lengths))
        )
        return keys.transpose(2, 3), values.transpose(2, 3)

    def _dense(self, b: int, longest: int) -> tuple[Tensor, Tensor]:
        """[1, G, longest, D] each: the tokens of each head; shorter heads have other bytes behind them"""
        return super().read(Past(np.array([[b]], dtype=np.int32), np.array([longest])))

    def save_page(self, page: int) -> list[Tensor]:
        return [self.held[page].clone(), *super().save_page(page)]

    def load_page(self, page: int, saved: list[Tensor]) -> None:
        self.held[page] = saved[0].clone()
        super().load_page(page, saved[1:])
