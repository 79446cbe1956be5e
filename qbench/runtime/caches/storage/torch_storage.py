"""`TorchStorage`: keys and values of one layer as tensors in a KV format, decoded at each step."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from qbench.policies import Observe
from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.attention.in_torch import CausalAttention
from qbench.runtime.attention.observed_weights import observed_weights
from qbench.runtime.attention.sink_attention import sink_attention
from qbench.runtime.caches.step import ChosenPages, Past
from qbench.runtime.caches.storage.kv_storage import Far, KVStorage
from quant.kv.codec import Codec
from quant.models import AttentionRule


class TorchStorage(KVStorage):
    """Results and bytes are right; speed is not the aim.

    codecs, scales   of keys and of values; each encodes a token by itself
    widths           of a head's key and value
    attention        one of `attention.in_torch`
    """

    layout = "torch-rows-1"

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        num_kv_heads: int,
        widths: tuple[int, int],
        codecs: tuple[Codec, Codec],
        scales: tuple[Tensor | None, Tensor | None] = (None, None),
        attention: CausalAttention = causal_attention,
    ) -> None:
        self.attention = attention
        self.num_pages, self._page_size = num_pages, page_size
        sides = list(zip(codecs, scales, widths, strict=True))
        shape = (num_pages, num_kv_heads, page_size)
        self._sides = [_Side(codec, scale, (*shape, width)) for codec, scale, width in sides]
        self.bytes_per_token = sum(codec.bytes_per_token(num_kv_heads, width) for codec, _, width in sides)

    @property
    def page_size(self) -> int:
        return self._page_size

    def resize(self, page_size: int) -> None:
        self._page_size = page_size
        for side in self._sides:
            side.resize(page_size)

    def add_pages(self, num_pages: int) -> None:
        self.num_pages = num_pages
        for side in self._sides:
            side.add_pages(num_pages)

    @torch.inference_mode()  # the parts were made in a forward pass of a model
    def copy_page(self, source: int, target: int) -> None:
        for part in self._parts():
            part[target] = part[source]

    def move(self, device: torch.device) -> None:
        for side in self._sides:
            side.parts = {name: part.to(device) for name, part in side.parts.items()}

    def save_page(self, page: int) -> list[Tensor]:
        return [part[page].clone() for part in self._parts()]

    @torch.inference_mode()
    def load_page(self, page: int, saved: list[Tensor]) -> None:
        for part, data in zip(self._parts(), saved, strict=True):
            part[page] = data

    @property
    def page_bytes(self) -> int:
        return sum(part[0].nbytes for part in self._parts())

    def dump_page(self, page: int, out: np.ndarray) -> None:
        start = 0
        for part in self._parts():
            data = bytes_of(part[page])
            out[start : start + len(data)] = data
            start += len(data)

    @torch.inference_mode()
    def fill_page(self, page: int, data: np.ndarray) -> None:
        start = 0
        for part in self._parts():
            held = bytes_of(part[page])
            held[:] = data[start : start + len(held)]
            start += len(held)

    def _parts(self) -> Iterator[Tensor]:
        """[pages, ...] each"""
        return (part for side in self._sides for part in side.parts.values())

    def append(self, k: Tensor, v: Tensor, past: Past, slots: Tensor | None = None) -> None:
        if past.cu_seqlens is not None:
            for one, columns in past.each():
                self.append(k[:, :, columns], v[:, :, columns], one)
            return
        for side, x in zip(self._sides, (k, v), strict=True):
            side.store(x, past, slots)

    def attend(
        self, q: Tensor, past: Past, rule: AttentionRule, observe: Observe | None = None, far: Far | None = None
    ) -> tuple[Tensor, Tensor | Iterator[Tensor] | None]:
        if past.cu_seqlens is not None:
            assert observe is None
            parts = []
            for one, columns in past.each():
                its = None if far is None else Far(far.num_sinks, far.q[:, :, columns])
                parts.append(self.attend(q[:, :, columns], one, rule, far=its)[0])
            return torch.cat(parts, dim=2), None
        keys, values = self.read(past)
        if far is not None:
            slots = past.slots_there(self.page_size)
            mass = None if observe is None else keys.new_zeros(keys.shape[:3])
            return sink_attention(q, far.q, keys, values, slots, far.num_sinks, rule, mass), mass
        return self.attention(q, keys, values, rule), observed_weights(q, keys, rule, observe)

    def attend_chosen(self, q: Tensor, chosen: ChosenPages, rule: AttentionRule) -> Tensor:
        outs = []
        for i, end in enumerate(chosen.ends.tolist()):
            pages = torch.from_numpy(chosen.pages[i, :, : -(-end // self.page_size)]).long()
            keys, values = (side.gather(pages, end) for side in self._sides)
            outs.append(self.attention(q[i : i + 1], keys, values, rule))
        return torch.cat(outs)

    def compact(self, past: Past, keep: Tensor) -> None:
        for side in self._sides:
            side.compact(past, keep)

    def read(self, past: Past) -> tuple[Tensor, Tensor]:
        keys, values = (side.read(past) for side in self._sides)
        return keys, values


class _Side:
    """Keys or values.

    shape   [pages, G, page_size, D] of the encoded numbers
    parts   [pages, G or 1, page_size, P] each. Zeros at first: hidden tokens weigh 0, and 0 times a NaN that memory
            happens to hold would be NaN
    """

    def __init__(self, codec: Codec, scale: Tensor | None, shape: tuple[int, int, int, int]) -> None:
        self.codec, self.scale = codec, scale
        num_pages, num_heads, self.page_size, width = shape
        one = codec.encode(torch.zeros(1, num_heads, 1, width), scale)
        self.parts = {
            name: part.new_zeros(num_pages, part.shape[1], self.page_size, part.shape[3]) for name, part in one.items()
        }

    def resize(self, page_size: int) -> None:
        common, self.page_size = min(page_size, self.page_size), page_size
        for name, part in self.parts.items():
            self.parts[name] = part.new_zeros(*part.shape[:2], page_size, part.shape[3])
            self.parts[name][:, :, :common] = part[:, :, :common]

    def add_pages(self, num_pages: int) -> None:
        for name, part in self.parts.items():
            self.parts[name] = part.new_zeros(num_pages, *part.shape[1:])
            self.parts[name][: len(part)] = part

    def store(self, x: Tensor, past: Past, slots: Tensor | None) -> None:
        end, rows = past.num_slots, past.rows()
        new = slice(end - x.shape[2], end)
        for name, part in self.codec.encode(x, self.scale).items():
            held, part = _movable(self.parts[name]), _movable(part)
            if slots is not None:
                _put(held, past, slots[..., None], part)
            elif rows is not None:
                held[rows, :, new] = part
            else:
                page, within = _places(past, torch.arange(new.start, end).expand(len(x), -1), self.page_size)
                held[page, :, within] = part.transpose(1, 2)  # [B, T, G, P]

    def compact(self, past: Past, keep: Tensor) -> None:
        front = torch.arange(keep.shape[2]).expand_as(keep)
        for part in self.parts.values():
            held = _movable(part)
            _put(held, past, front, _take(held, past, keep))

    def gather(self, pages: Tensor, num_slots: int) -> Tensor:
        """The first slots of the pages [G, n] of each head, decoded: [1, G, num_slots, D]"""
        parts = {}
        for name, part in self.parts.items():
            heads = torch.arange(len(pages)).clamp(max=part.shape[1] - 1)  # all heads may share an entry
            found = _movable(part)[pages, heads[:, None]].view(part.dtype)  # [G, n, page_size, P]
            parts[name] = found.flatten(1, 2)[None, :, :num_slots]
        return self.codec.decode(parts, self.scale)

    def read(self, past: Past) -> Tensor:
        rows, end = past.rows(), past.num_slots
        if rows is not None:
            return self.codec.decode({name: part[rows, :, :end] for name, part in self.parts.items()}, self.scale)
        used, num_slots = past.pages_read(self.page_size)
        parts = {name: part[used].transpose(1, 2).flatten(2, 3)[:, :, :num_slots] for name, part in self.parts.items()}
        return self.codec.decode(parts, self.scale)


def bytes_of(part: Tensor) -> np.ndarray:
    """The memory of a contiguous tensor, uint8"""
    return part.view(-1).view(torch.uint8).numpy()


def _places(past: Past, slots: Tensor, page_size: int) -> tuple[Tensor, Tensor]:
    """Pages and slots in them, of slots [B, ...] of the sequences."""
    pages = torch.from_numpy(past.block_table).long().gather(1, (slots // page_size).flatten(1))
    return pages.view(slots.shape), slots % page_size


def _take(held: Tensor, past: Past, slots: Tensor) -> Tensor:
    """[B, G, n, P] in the slots [B, G, n]; heads that share an entry have the same slots."""
    page, within = _places(past, slots[:, : held.shape[1]], held.shape[2])
    return held[page, torch.arange(held.shape[1])[:, None], within]


def _put(held: Tensor, past: Past, slots: Tensor, entries: Tensor) -> None:
    page, within = _places(past, slots[:, : held.shape[1]], held.shape[2])
    held[page, torch.arange(held.shape[1])[:, None], within] = entries


def _movable(part: Tensor) -> Tensor:
    """The same memory in a type that torch can index: bytes instead of float8"""
    return part.view(torch.uint8) if part.dtype.itemsize == 1 else part
