"""What pages are made of: cpu_kernels' stores, tensors, or rows of latents."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.caches.kernel_cache import make_store
from qbench.runtime.caches.latent_cache import LatentFormat
from qbench.runtime.caches.quantized_cache import layer_scales
from quant.errors import InputError
from quant.kv import KVScheme
from quant.kv.codec import Codec
from quant.kv.floats import Floats
from quant.models import ModelConfig
from quant.present import present

EVICTED = -1  # in the place of a page that its sequence has freed

PageBytes = list[np.ndarray] | list[Tensor]  # all that a page holds, as `save` of its memory gives it to `load`


def pages_there(pages: list[list[int]], num_pages: int) -> list[int]:
    """Of the first pages of some sequences, those that any of them holds."""
    return [i for i in range(num_pages) if any(row[i] != EVICTED for row in pages)]


def read_pages(pages: list[list[int]], num_tokens: int, page_size: int) -> tuple[Tensor, int]:
    """[B, pages] int64: where to read those that any sequence holds, and how many of the tokens there come first.

    A page that one has freed and another has not is hidden from its queries: it reads its last page instead.
    """
    there = pages_there(pages, -(-num_tokens // page_size))
    used = torch.tensor([[row[i] if row[i] != EVICTED else row[there[-1]] for i in there] for row in pages])
    return used, num_tokens - (there[-1] + 1 - len(there)) * page_size


def tokens_there(pages: list[list[int]], num_tokens: int, page_size: int) -> Tensor:
    """[S] int64: the tokens in `pages_there` of the first num_tokens, in order"""
    firsts = page_size * torch.tensor(pages_there(pages, -(-num_tokens // page_size)))
    tokens = (firsts[:, None] + torch.arange(page_size)).flatten()
    return tokens[tokens < num_tokens]


class StorePages:
    """One store a layer, a page of it a page."""

    def __init__(self, config: ModelConfig, scheme: KVScheme | None, num_pages: int, page_size: int) -> None:
        layers = range(config.num_layers)
        self.stores: list[Any] = [make_store(config, scheme, layer, num_pages, page_size) for layer in layers]
        self.page_bytes = sum(store.nbytes for store in self.stores) // num_pages

    def copy(self, source: int, target: int) -> None:
        for store in self.stores:
            store.copy_page(source, target)

    def add_pages(self, num_pages: int) -> None:
        """num_pages: all from now on"""
        for store in self.stores:
            store.add_pages(num_pages)

    def save(self, page: int) -> PageBytes:
        saved = [np.empty(store.page_bytes, dtype=np.uint8) for store in self.stores]
        for store, data in zip(self.stores, saved, strict=True):
            store.read_page(page, data)
        return saved

    def load(self, page: int, saved: PageBytes) -> None:
        for store, data in zip(self.stores, saved, strict=True):
            store.write_page(page, data)


class TorchPages:
    """One tensor a layer for each part of what the format keeps; raises InputError where it keeps groups of tokens."""

    def __init__(self, config: ModelConfig, scheme: KVScheme | None, num_pages: int, page_size: int) -> None:
        codecs = (Floats(torch.float32),) * 2 if scheme is None else (scheme.format.keys, scheme.format.values)
        if any(codec.token_group > 1 for codec in codecs):
            name = present(scheme).format.name
            raise InputError(
                f"{name} encodes several tokens together, which no pages hold: what a token reads would "
                "depend on the other requests of its forward pass; take a format that encodes each token by itself"
            )
        self.sides = [
            tuple(_Side(codec, scale, num_pages, page_size) for codec, scale in zip(codecs, scales, strict=True))
            for scales in (
                (None, None) if scheme is None else layer_scales(scheme, layer) for layer in range(config.num_layers)
            )
        ]
        widths = zip(codecs, (config.head_dim, config.value_dim), strict=True)
        token_bytes = sum(codec.bytes_per_token(config.num_kv_heads, width) for codec, width in widths)
        self.page_bytes = round(config.num_layers * page_size * token_bytes)

    @torch.inference_mode()  # as what is held was made in a forward pass of a model
    def copy(self, source: int, target: int) -> None:
        for sides in self.sides:
            for side in sides:
                side.copy(source, target)

    def add_pages(self, num_pages: int) -> None:
        for sides in self.sides:
            for side in sides:
                side.add_pages(num_pages)

    def save(self, page: int) -> PageBytes:
        return [part[page].clone() for part in self._parts()]

    @torch.inference_mode()
    def load(self, page: int, saved: PageBytes) -> None:
        for part, data in zip(self._parts(), saved, strict=True):
            assert isinstance(data, Tensor)
            part[page] = data

    def _parts(self) -> Iterator[Tensor]:
        """[pages, ...] each; of a page that holds tokens they are there"""
        return (part for sides in self.sides for side in sides for part in side.parts.values())

    def extend(self, layer: int, pages: list[list[int]], seq_len: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store k and v [B, G, T, D] behind `seq_len` tokens of sequences in these pages; returns all, [B, G, S, D].

        Where pages are EVICTED for all, S counts only tokens of those that are there, as `tokens_there` says.
        """
        keys, values = self.sides[layer]
        return keys.extend(pages, seq_len, k), values.extend(pages, seq_len, v)


class LatentPages:
    """One tensor a layer of the rows that all heads share."""

    def __init__(self, config: ModelConfig, fmt: LatentFormat, num_pages: int, page_size: int) -> None:
        mla = present(config.mla)
        self.format, self.rank, self.page_size = fmt, mla.kv_lora_rank, page_size
        shape = (num_pages, page_size, fmt.width(mla))
        self.held = [torch.empty(shape, dtype=fmt.dtype) for _ in range(config.num_layers)]
        self.page_bytes = config.num_layers * page_size * fmt.row_bytes(mla)

    def copy(self, source: int, target: int) -> None:
        for held in self.held:
            held[target] = held[source]

    def add_pages(self, num_pages: int) -> None:
        for layer, held in enumerate(self.held):
            self.held[layer] = held.new_empty(num_pages, *held.shape[1:])
            self.held[layer][: len(held)] = held

    def save(self, page: int) -> PageBytes:
        return [held[page].clone() for held in self.held]

    def load(self, page: int, saved: PageBytes) -> None:
        for held, data in zip(self.held, saved, strict=True):
            assert isinstance(data, Tensor)
            held[page] = data

    def store(self, layer: int, pages: list[list[int]], seq_len: int, rows: Tensor) -> None:
        """Keep rows [B, T, latent_size] float32 behind `seq_len` tokens of sequences in these pages."""
        places = torch.arange(seq_len, seq_len + rows.shape[1])
        number, within = places // self.page_size, places % self.page_size
        first = seq_len // self.page_size
        used = torch.tensor([row[first : int(number[-1]) + 1] for row in pages])  # [B, pages]
        self.held[layer][used[:, number - first], within] = self.format.encode(rows, self.rank)

    def read(self, layer: int, pages: list[list[int]], seq_len: int) -> Tensor:
        """The first tokens as they are stored, those of pages that are there: [B, length or fewer, width]"""
        used, end = read_pages(pages, seq_len, self.page_size)
        return self.held[layer][used].flatten(1, 2)[:, :end]


class _Side:
    """Keys or values of one layer."""

    def __init__(self, codec: Codec, scale: Tensor | None, num_pages: int, page_size: int) -> None:
        self.codec, self.scale = codec, scale
        self.num_pages, self.page_size = num_pages, page_size
        self.parts: dict[str, Tensor] = {}  # [pages, G or 1, page_size, P] each, made when the first token comes

    def copy(self, source: int, target: int) -> None:
        for part in self.parts.values():
            part[target] = part[source]

    def add_pages(self, num_pages: int) -> None:
        self.num_pages = num_pages
        for name, part in self.parts.items():
            self.parts[name] = part.new_zeros(num_pages, *part.shape[1:])
            self.parts[name][: len(part)] = part

    def extend(self, pages: list[list[int]], seq_len: int, x: Tensor) -> Tensor:
        """Store x [B, G, T, D] behind `seq_len` tokens of each sequence; returns all, [B, G, S, D]."""
        used, end = read_pages(pages, seq_len + x.shape[2], self.page_size)
        places = torch.arange(end - x.shape[2], end)
        number, within = places // self.page_size, places % self.page_size
        for name, part in self.codec.encode(x, self.scale).items():
            held = self._part(name, part)
            held[used[:, number], :, within] = part.transpose(1, 2)  # [B, T, G, P]
        read = {name: self._gather(part, used)[:, :, :end] for name, part in self.parts.items()}
        return self.codec.decode(read, self.scale)

    def _part(self, name: str, like: Tensor) -> Tensor:
        if name not in self.parts:
            # Zeros: what is hidden weighs 0, and 0 times a NaN that memory happens to hold is NaN.
            self.parts[name] = like.new_zeros(self.num_pages, like.shape[1], self.page_size, like.shape[3])
        return self.parts[name]

    def _gather(self, part: Tensor, used: Tensor) -> Tensor:
        """-> [B, G, pages * page_size, P]"""
        return part[used].transpose(1, 2).flatten(2, 3)  # [B, pages, G, tokens, P] before
