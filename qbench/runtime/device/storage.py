"""`DeviceStorage`: keys and values of one layer in pages on a device."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from gpu_kernels.attention.paged import PagedCache
from gpu_kernels.decode.pages import Pages
from gpu_kernels.fused.compact import Operands as Compact
from gpu_kernels.fused.compact import compact
from qbench.runtime.attention.observed_weights import query_weights
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.kv_storage import OtherwiseCalled
from qbench.runtime.device.kv import PAGE_SIZE
from qbench.runtime.device.place import Place
from qbench.runtime.device.torch_attention import read_side
from quant.models import AttentionRule


def page_slots(slots: np.ndarray, sequence: np.ndarray, batch: int) -> np.ndarray:
    """Slots among all pages of the slots of sequences: page p of sequence b is number p * batch + b."""
    return (slots // PAGE_SIZE * batch + sequence) * PAGE_SIZE + slots % PAGE_SIZE


class DeviceStorage(OtherwiseCalled):
    """A page of this memory is a sequence, whose pages on the device grow and shrink together with those of others.

    pages   of all layers; those of `layer` are replaced when their number changes
    """

    expects = "keys and values that gpu_kernels write and attend to; expected a call of the cache"

    def __init__(self, pages: Pages, layer: int, batch: int, place: Place) -> None:
        self.pages, self.layer, self.num_pages, self.place = pages, layer, batch, place
        self.bytes_per_token = pages.bytes_per_token[layer]
        self.block_table = self._table(self.num_device_pages)

    @property
    def _sides(self) -> tuple[list[Tensor], list[Tensor]]:
        return self.pages.keys, self.pages.values

    @property
    def num_device_pages(self) -> int:
        """Pages of each sequence"""
        return len(self.pages.keys[self.layer]) // self.num_pages

    @property
    def page_size(self) -> int:
        return self.num_device_pages * PAGE_SIZE

    def _table(self, num_device_pages: int) -> Tensor:
        """[B, P] int32"""
        table = np.arange(num_device_pages * self.num_pages, dtype=np.int32).reshape(num_device_pages, self.num_pages)
        return self.place.send(np.ascontiguousarray(table.T))

    def paged(self, seq_lens: Tensor) -> PagedCache:
        """seq_lens: [B] int32"""
        keys, values = (side[self.layer] for side in self._sides)
        where = {"block_table": self.block_table, "seq_lens": seq_lens}
        return PagedCache(keys, values, *self.pages.scales(self.layer), **where)

    def take(self, ends: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """The last counts [B] of ends [B] slots get new tokens.

        returns  [B] or [B, G]: tokens that each sequence or head then has in its pages
        """
        return ends

    def mass_in_slots(self, b: int, end: int, mass: Tensor) -> Tensor:
        """[B, G, S] as the kernels return it -> [1, G, end]: weights that a sequence's tokens received, in its slots"""
        return mass[b : b + 1, :, :end]

    def weights_in_slots(self, b: int, end: int, queries: Tensor, rule: AttentionRule) -> Iterator[Tensor]:
        """The weights of each query of a sequence: [1, G, t, end] for some queries at a time

        queries  [1, H, T, D] float32, rotated
        """
        keys, _ = self.read(Past(np.array([[b]], dtype=np.int32), np.array([end])))
        return query_weights(queries, keys, rule)

    def resize(self, page_size: int) -> None:
        wanted, common = -(-page_size // PAGE_SIZE), self.num_device_pages
        if wanted == common:
            return
        rows = min(wanted, common) * self.num_pages
        for held in self.pages.in_pages:
            old = held[self.layer]
            shape = (wanted * self.num_pages, *old.shape[1:-1], old.shape[-1] * old.itemsize)
            new = torch.zeros(shape, dtype=torch.uint8, device=old.device).view(old.dtype)
            new.view(torch.uint8)[:rows] = old.view(torch.uint8)[:rows]
            held[self.layer] = new
        self.block_table = self._table(wanted)

    def compact(self, past: Past, keep: Tensor) -> None:
        table = self.block_table[int(past.block_table[0, 0])][None]
        where = self.place.send(keep.int().contiguous().numpy())
        keys, values, *scales = (held[self.layer] for held in self.pages.in_pages)
        compact(Compact(keys, values, table, where))
        if scales:
            # Heads of one number, or of a scale and a minimum.
            key_scale, value_scale = (scale[..., None] if scale.dim() == 3 else scale for scale in scales)
            compact(Compact(key_scale, value_scale, table, where))

    def read(self, past: Past) -> tuple[Tensor, Tensor]:
        table = self.block_table[int(past.block_table[0, 0])]
        sides = zip(self._sides, self.pages.scales(self.layer), strict=True)
        keys, values = (
            read_side(side[self.layer], table, past.num_slots, scale, torch.float32).cpu() for side, scale in sides
        )
        return keys, values

    def save_page(self, page: int) -> list[Tensor]:
        return [held[self.layer].view(torch.uint8)[page :: self.num_pages].clone() for held in self.pages.in_pages]

    def load_page(self, page: int, saved: list[Tensor]) -> None:
        for held, data in zip(self.pages.in_pages, saved, strict=True):
            held[self.layer].view(torch.uint8)[page :: self.num_pages] = data

    def add_pages(self, num_pages: int) -> None:
        raise NotImplementedError("pages of one sequence each, whose number is fixed")

    def copy_page(self, source: int, target: int) -> None:
        self.load_page(target, self.save_page(source))
