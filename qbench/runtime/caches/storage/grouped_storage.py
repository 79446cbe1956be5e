"""`GroupedStorage`: keys and values of one layer in a KV format that encodes several tokens together, in torch."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.attention.causal_attention import causal_attention
from qbench.runtime.attention.in_torch import CausalAttention
from qbench.runtime.attention.rope import rotate
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.kv_storage import JointStorage
from quant.kv import KVFormat
from quant.kv.codec import Codec
from quant.models import AttentionRule


class Groups(NamedTuple):
    """The format, scales and sizes of a storage of groups.

    scales   of keys and of values
    sizes    KV heads, and the widths of a head's key and value
    """

    format: KVFormat
    scales: tuple[Tensor | None, Tensor | None]
    num_pages: int
    page_size: int
    sizes: tuple[int, int, int]


class GroupedStorage(JointStorage):
    """Groups of tokens are encoded when they are full; the tokens after the last group are floats.

    Each sequence has one page. Decodes all tokens at each step: results and bytes are right, speed is not the aim.

    attention  one of `attention.in_torch`
    """

    def __init__(self, groups: Groups, attention: CausalAttention = causal_attention) -> None:
        self.format, scales, self.num_pages, self._first_size, self.sizes = groups
        self.attention, self._page_size = attention, self._first_size
        self.bytes_per_token = self.format.bytes_per_token(*self.sizes)
        self._codecs = list(zip((self.format.keys, self.format.values), scales, strict=True))
        self._pages: dict[int, list[Side]] = {}

    def _side(self, codec: Codec, scale: Tensor | None) -> "Side":
        return Side(self.format, codec, scale, self._first_size)

    def _sides(self, page: int) -> "list[Side]":
        """Keys and values of the sequence of a page."""
        if page not in self._pages:
            self._pages[page] = [self._side(codec, scale) for codec, scale in self._codecs]
        return self._pages[page]

    @property
    def page_size(self) -> int:
        return self._page_size

    @property
    def size_bytes(self) -> int:
        """Bytes held for tokens that are there or expected."""
        return sum(side.size_bytes for sides in self._pages.values() for side in sides)

    def resize(self, page_size: int) -> None:
        self._page_size = page_size  # each side grows when a group is full

    def append_attend(
        self, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor] | None, past: Past, rule: AttentionRule
    ) -> Tensor:
        if rope is not None:
            q, k = rotate(q, *rope), rotate(k, *rope)
        if past.cu_seqlens is None:
            rows = [slice(b, b + 1) for b in range(len(q))]
            outs = [self._of_sequence(b, q[one], k[one], v[one], past, rule) for b, one in enumerate(rows)]
            return torch.cat(outs)
        spans = [slice(start, end) for start, end in pairwise(past.cu_seqlens.tolist())]
        outs = [
            self._of_sequence(b, q[:, :, new], k[:, :, new], v[:, :, new], past, rule) for b, new in enumerate(spans)
        ]
        return torch.cat(outs, dim=2)

    def _of_sequence(self, b: int, q: Tensor, k: Tensor, v: Tensor, past: Past, rule: AttentionRule) -> Tensor:
        end = int(past.ends[b])
        start, sides = end - q.shape[2], self._sides(int(past.block_table[b, 0]))
        outputs = []
        for run in self.format.uniform_runs(start, end):
            new = slice(run[0] - start, run[1] - start)
            keys, values = (side.extend(x[:, :, new]) for side, x in zip(sides, (k, v), strict=True))
            outputs.append(self.attention(q[:, :, new], keys, values, rule))
        return torch.cat(outputs, dim=2)

    def mark(self) -> None:
        for sides in self._pages.values():
            for side in sides:
                side.mark()

    def check_truncate(self, block_table: np.ndarray, after: np.ndarray) -> None:
        for side, kept in self._sides_to(block_table, after):
            side.check_truncate(kept)

    def truncate(self, block_table: np.ndarray, before: np.ndarray, after: np.ndarray) -> None:
        """Encoded tokens that become floats again are floats as decoded."""
        for side, kept in self._sides_to(block_table, after):
            side.truncate(kept)

    def _sides_to(self, block_table: np.ndarray, after: np.ndarray) -> "Iterator[tuple[Side, int]]":
        """Each side of the sequences, and the number of tokens that it is to keep."""
        for page, kept in zip(block_table[:, 0].tolist(), after.tolist(), strict=True):
            for side in self._sides(page):
                yield side, kept

    def compact(self, past: Past, keep: Tensor) -> None:
        raise NotImplementedError(f"{self.format.name} encodes several tokens together, which stay together")

    def read(self, past: Past) -> tuple[Tensor, Tensor]:
        raise NotImplementedError(self.expects)

    def add_pages(self, num_pages: int) -> None:
        raise NotImplementedError("each sequence has one page")

    def copy_page(self, source: int, target: int) -> None:
        raise NotImplementedError("each sequence has one page")

    def save_page(self, page: int) -> object:
        raise NotImplementedError("each sequence has one page")

    def load_page(self, page: int, saved: object) -> None:
        raise NotImplementedError("each sequence has one page")


class Side:
    """Keys or values of one layer of one sequence: encoded groups of tokens, and the tokens after them as floats."""

    def __init__(self, fmt: KVFormat, codec: Codec, scale: Tensor | None, capacity: int = 0) -> None:
        self.format = fmt
        self.codec = codec
        self.scale = scale
        self.capacity = fmt.num_encoded(capacity)
        self.parts: dict[str, Tensor] = {}  # [1, G or 1, tokens or groups, P] each, room for `capacity` tokens
        self.encoded = 0  # tokens in `parts`
        self.tail: Tensor | None = None  # [1, G, tokens that are not encoded, D] float32, with a residual float16

    @property
    def size_bytes(self) -> int:
        tail = 0 if self.tail is None else self.tail.nbytes
        return tail + sum(part.nbytes for part in self.parts.values())

    def extend(self, x: Tensor) -> Tensor:
        """Append x [1, G, T, D] to the tokens held; returns all of them as they are read, [1, G, S, D]."""
        x = self._as_tail(x)
        if self.tail is not None:
            x = torch.cat([self.tail, x], dim=2)
        new = self._num_encoded(self.encoded + x.shape[2]) - self.encoded
        if new:
            self._store(self.codec.encode(x[:, :, :new].float(), self.scale), new)
        self.tail = x[:, :, new:].clone() if new < x.shape[2] else None
        held = [] if not self.encoded else [self.codec.decode(self._held(self.encoded), self.scale)]
        return torch.cat([*held, self.tail.float()], dim=2) if self.tail is not None else held[0]

    def mark(self) -> None:
        """Nothing to remember: `truncate` makes encoded tokens floats again."""

    def check_truncate(self, seq_len: int) -> None:
        """raises InputError for a length that it cannot go back to"""
        return

    def truncate(self, seq_len: int) -> None:
        encoded = self._num_encoded(seq_len)
        floats = [] if self.tail is None else [self.tail]
        if encoded < self.encoded:
            decoded = self.codec.decode(self._held(self.encoded), self.scale)
            floats.insert(0, self._as_tail(decoded[:, :, encoded:]))
        self.encoded = encoded
        self.tail = torch.cat(floats, dim=2)[:, :, : seq_len - encoded] if seq_len > encoded else None

    def _num_encoded(self, num_tokens: int) -> int:
        if self.format.residual:
            return self.format.num_encoded(num_tokens)
        return num_tokens // self.codec.token_group * self.codec.token_group

    def _as_tail(self, x: Tensor) -> Tensor:
        return x.half() if self.format.residual else x

    def _held(self, num_tokens: int) -> dict[str, Tensor]:
        return {name: part[:, :, : self._entries(name, num_tokens)] for name, part in self.parts.items()}

    def _entries(self, name: str, num_tokens: int) -> int:
        """Entries along a part's token axis: one per token for codes, one per group of tokens for shared numbers."""
        return num_tokens if name == "codes" else num_tokens // self.codec.token_group

    def _store(self, parts: dict[str, Tensor], num_tokens: int) -> None:
        end = self.encoded + num_tokens
        group = self.codec.token_group
        if end > self.capacity or not self.parts:
            self.capacity = -(-max(self.capacity, end, 2 * self.encoded) // group) * group
            grown = {
                name: part.new_empty(*part.shape[:2], self._entries(name, self.capacity), part.shape[3])
                for name, part in parts.items()
            }
            for name, part in self._held(self.encoded).items():
                grown[name][:, :, : part.shape[2]] = part
            self.parts = grown
        for name, part in parts.items():
            self.parts[name][:, :, self._entries(name, self.encoded) : self._entries(name, end)] = part
        self.encoded = end
