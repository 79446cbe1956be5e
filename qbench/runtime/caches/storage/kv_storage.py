"""`PageMemory` and `KVStorage`: the bytes that a cache keeps of one layer, in pages."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from qbench.policies import Observe
from qbench.prefill import BlockLists
from qbench.runtime.attention.block_attention import PartialAttention, block_attention
from qbench.runtime.attention.rope import rotate
from qbench.runtime.attention.ruled_attention import attention_at
from qbench.runtime.caches.step import ChosenPages, Past
from qbench.runtime.caches.storage.latent_format import Latents
from qbench.runtime.caches.storage.share import NewTokens, Seen
from quant.models import AttentionRule

BLOCK_TOKENS = 16  # a page holds whole blocks of so many tokens


def held_tokens(num_tokens: int) -> int:
    """Tokens that a page of room for num_tokens holds."""
    return -(-num_tokens // BLOCK_TOKENS) * BLOCK_TOKENS


class PageMemory(ABC):
    """Pages of one layer, with as many slots each.

    num_pages, page_size   pages, and slots of each
    bytes_per_token        bytes of a slot; a fraction if tokens share a scale
    latents                rows that all heads share; None: every KV head has its own keys and values
    layout                 name and version of the order of a page's bytes, the same for all instruction sets; "": pages
                           stay in this memory
    by_sequence            whether a sequence's first page has all its tokens; its other pages are as many as its bytes
                           fill
    num_rings              sequences whose recent tokens are apart from the pages, in rings; the first column of a block
                           table is the ring of each sequence. 0: pages hold all tokens
    """

    by_sequence: bool = False
    num_rings: int = 0
    num_pages: int
    bytes_per_token: float
    latents: Latents | None = None
    layout: str = ""

    @property
    @abstractmethod
    def page_size(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """Memory of all pages."""
        return round(self.num_pages * self.page_size * self.bytes_per_token)

    @property
    def ring_bytes(self) -> int:
        """Memory of a ring."""
        return 0

    def save_ring(self, ring: int) -> Any:
        """A copy of a ring's bytes, for `load_ring` of any ring."""
        raise NotImplementedError(f"{type(self).__name__} has no rings apart from its pages")

    def load_ring(self, ring: int, saved: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no rings apart from its pages")

    def pages_for(self, num_slots: int) -> int:
        """Pages that so many slots of one sequence take, at most; no fewer if there are more slots."""
        return -(-num_slots // self.page_size)

    def free_page(self, page: int) -> None:
        """No sequence has the page."""
        return  # its bytes stay, for the next one

    def mark(self) -> None:
        """Remember everything that `truncate` to this length needs."""
        return  # later tokens overwrite no slot of earlier ones

    def check_truncate(self, block_table: np.ndarray, after: np.ndarray) -> None:
        """raises InputError if the sequences of a block table cannot go back to `after` [B] tokens"""
        return

    def truncate(self, block_table: np.ndarray, before: np.ndarray, after: np.ndarray) -> None:
        """The sequences of a block table go back from `before` [B] tokens to `after`."""
        return  # later tokens overwrite the slots

    @abstractmethod
    def resize(self, page_size: int) -> None:
        """Give each page another number of slots, rounded up if need be; tokens in the common ones stay."""

    @abstractmethod
    def add_pages(self, num_pages: int) -> None:
        """num_pages: all from now on"""

    @abstractmethod
    def copy_page(self, source: int, target: int) -> None: ...

    def move(self, device: torch.device) -> None:
        """Keep everything on another device of torch."""
        raise NotImplementedError(f"{type(self).__name__} is in host memory")

    @abstractmethod
    def save_page(self, page: int) -> Any:
        """A copy of a page's bytes, for `load_page` of any page of a memory of the same sizes."""

    @abstractmethod
    def load_page(self, page: int, saved: Any) -> None: ...

    @property
    def page_bytes(self) -> int:
        """Bytes that `dump_page` writes."""
        raise NotImplementedError(f"pages of {type(self).__name__} do not leave it")

    def dump_page(self, page: int, out: np.ndarray) -> None:
        """Copy a page's bytes to `out` [page_bytes] uint8."""
        raise NotImplementedError(f"pages of {type(self).__name__} do not leave it")

    def fill_page(self, page: int, data: np.ndarray) -> None:
        """Restore the bytes from `dump_page` into a page. Another thread may use other pages meanwhile."""
        raise NotImplementedError(f"pages of {type(self).__name__} do not leave it")

    def dump_pages(self, pages: np.ndarray, out: np.ndarray) -> None:
        """`dump_page` of pages [n] int32 to the rows of out [n, page_bytes or more] uint8."""
        for page, row in zip(pages.tolist(), out, strict=True):
            self.dump_page(page, row[: self.page_bytes])

    def fill_pages(self, pages: np.ndarray, data: np.ndarray) -> None:
        """`fill_page` of pages [n] int32 from the rows of data."""
        for page, row in zip(pages.tolist(), data, strict=True):
            self.fill_page(page, row[: self.page_bytes])

    def save(self) -> object:
        """A copy of everything, for `load`."""
        return self.page_size, [self.save_page(page) for page in range(self.num_pages)]

    def load(self, saved: object) -> None:
        """Store a result of `save` again; its memory is not used afterwards."""
        assert isinstance(saved, tuple)
        page_size, pages = saved
        if page_size != self.page_size:
            self.resize(page_size)
        for page, data in enumerate(pages):
            self.load_page(page, data)


@dataclass(frozen=True, slots=True)
class Far:
    """A second rotation of the queries, by which they meet the keys of the first tokens.

    num_sinks   these tokens are visible to every query, whatever its window
    q           [B, H, T, D] float32, rotated
    """

    num_sinks: int
    q: Tensor


class KVStorage(PageMemory):
    """Keys and values of every KV head. A slot holds one token per KV head, not the same one in each head.

    one_width  whether values have to be as wide as keys
    """

    one_width: bool = False

    @abstractmethod
    def append(self, k: Tensor, v: Tensor, past: Past, slots: Tensor | None = None) -> None:
        """Store the new tokens in the last slots of their sequences.

        k, v   [B, G, T, D] float32, k rotated; of a varlen batch [1, G, N, D]
        slots  [B, G] int64: slot of each head that the only new token takes instead
        """

    def append_attend(
        self, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor] | None, past: Past, rule: AttentionRule
    ) -> Tensor:
        """Store the new tokens and attend over all slots in use.

        rope     cos and sin by which queries and keys are still to be rotated; None: they are
        returns  [B, H, T, D] float32
        """
        if rope is None:
            self.append(k, v, past)
        else:
            q = self.rope_append(q, k, v, rope, past)
        return self.attend(q, past, rule)[0]

    def rope_append(self, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], past: Past) -> Tensor:
        """`append` of keys that are still to be rotated; returns the queries [B, H, T, D] rotated."""
        self.append(rotate(k, *rope), v, past)
        return rotate(q, *rope)

    @abstractmethod
    def attend(
        self, q: Tensor, past: Past, rule: AttentionRule, observe: Observe | None = None, far: Far | None = None
    ) -> tuple[Tensor, Tensor | Iterator[Tensor] | None]:
        """Attention of the queries of the new tokens over all slots in use.

        q        [B, H, T, D] float32, rotated; of a varlen batch [1, H, N, D]
        observe  not of a varlen batch
        far      None: no query meets a key by another rotation
        returns  [B, H, T, D] float32; the weights that `CachePolicy.update` or `update_each` takes, None if nothing is
                 observed
        """

    def attend_chosen(self, q: Tensor, chosen: ChosenPages, rule: AttentionRule) -> Tensor:
        """Attention of each query over the pages that it reads.

        q        [N, H, 1, D] float32, rotated
        returns  [N, H, 1, D] float32
        """
        raise NotImplementedError(f"{type(self).__name__} has no pages that a query could choose")

    def attend_blocks(self, q: Tensor, past: Past, softmax_scale: float, lists: BlockLists) -> PartialAttention:
        """Attention over listed blocks, of all queries q [H, T, D] of one sequence whose slots hold no other tokens."""
        keys, values = self.read(past)
        return block_attention(q, keys[0], values[0], softmax_scale, lists)

    def append_part(
        self, q: Tensor, k: Tensor, v: Tensor, past: Past, rule: AttentionRule, new: NewTokens
    ) -> PartialAttention:
        """Store the own ones of the new tokens, and attend over all slots in use.

        q, k, v  of all new tokens, rotated; not of a varlen batch
        returns  out [B, H, T, D] and lse [B, H, T], of keys in these slots alone
        """
        if new.own.any():
            self.append(k[:, :, new.own], v[:, :, new.own], past)
        return self.attend_part(q, past, rule, new)

    def attend_part(self, q: Tensor, past: Past, rule: AttentionRule, new: Seen) -> PartialAttention:
        keys, values = self.read(past)
        return attention_at(q, keys, values, rule, new.positions, new.held)

    def finish(self, past: Past) -> None:
        """A forward pass of these sequences is over, and so are the evictions after it."""

    @abstractmethod
    def compact(self, past: Past, keep: Tensor) -> None:
        """Move the slots `keep` [B, G, n], ascending, to the front."""

    @abstractmethod
    def read(self, past: Past) -> tuple[Tensor, Tensor]:
        """Keys and values of the slots in `Past.slots_there` as attention reads them, [B, G, S, D] float32"""


class OtherwiseCalled(KVStorage):
    """A storage that another call appends and attends to.

    expects   message for whoever calls `append` or `attend`
    """

    expects: ClassVar[str]

    def append(self, k: Tensor, v: Tensor, past: Past, slots: Tensor | None = None) -> None:
        raise NotImplementedError(self.expects)

    def attend(
        self, q: Tensor, past: Past, rule: AttentionRule, observe: Observe | None = None, far: Far | None = None
    ) -> tuple[Tensor, Tensor | Iterator[Tensor] | None]:
        raise NotImplementedError(self.expects)


class JointStorage(OtherwiseCalled):
    """Stores and attends in one call: tokens that are encoded later are floats to the queries before."""

    expects = "tokens that queries have yet to see as floats; expected append_attend"

    @abstractmethod
    def append_attend(
        self, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor] | None, past: Past, rule: AttentionRule
    ) -> Tensor: ...
