"""Caches of pages for problems and tests: pages in any order, and poison wherever a kernel must not read."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch
from torch import Tensor

from gpu_kernels.attention.paged import CODES, PagedCache
from gpu_kernels.proof.problems import Draw, dtype_name

# Entry of the block table for pages that a sequence does not have: it is far outside of any cache.
ABSURD_PAGE = 2**30


@dataclass(frozen=True, slots=True)
class SequencesCase:
    """The common fields of cases of attention over sequences in pages."""

    seq_lens: tuple[int, ...]
    num_heads: int
    query_dtype: torch.dtype = field(default=torch.float16, kw_only=True)
    is_timed: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class PagedCase(SequencesCase):
    """The common fields of cases over keys and values of several heads."""

    num_kv_heads: int
    head_size: int
    cache_dtype: torch.dtype
    page_size: int = 16
    window: int | None = None

    @property
    def sizes(self) -> dict[str, int | str]:
        """Entries of `Problem.sizes`"""
        return {
            "B": len(self.seq_lens),
            "T": max(self.seq_lens),
            "H": self.num_heads,
            "Hkv": self.num_kv_heads,
            "D": self.head_size,
            "window": self.window or 0,
            "dtype": dtype_name(self.query_dtype),
            "cache": dtype_name(self.cache_dtype),
        }


def page_tables(seq_lens: list[int], page_size: int, device: str, seed: int = 0) -> tuple[Tensor, Tensor, int]:
    """(block_table [B, P] int32, seq_lens [B] int32, num_pages): one page more a sequence than its tokens need.

    P also has one more, absurd, at least.
    """
    needed = [-(-length // page_size) for length in seq_lens]
    num_pages = sum(needed) + len(seq_lens)
    width = max(needed, default=0) + 1
    if device == "meta":
        like = {"dtype": torch.int32, "device": device}
        return torch.empty(len(seq_lens), width, **like), torch.empty(len(seq_lens), **like), num_pages
    pages = torch.randperm(num_pages, generator=torch.Generator().manual_seed(seed)).int().tolist()
    table = torch.full((len(seq_lens), width), ABSURD_PAGE, dtype=torch.int32)
    for row, count in zip(table, needed, strict=True):
        row[:count] = torch.tensor([pages.pop() for _ in range(count)], dtype=torch.int32)
    return table.to(device), torch.tensor(seq_lens, dtype=torch.int32, device=device), num_pages


def poison(cache: Tensor, block_table: Tensor, seq_lens: list[int], value: float) -> Tensor:
    """cache [num_pages, page_size, ...] with `value` in every token that belongs to no sequence; in place."""
    if cache.device.type == "meta":
        return cache
    page_size = cache.shape[1]
    is_free = torch.ones(cache.shape[:2], dtype=torch.bool, device=cache.device)
    for pages, length in zip(block_table, seq_lens, strict=True):
        full, rest = divmod(length, page_size)
        is_free[pages[:full].long()] = False
        if rest:
            is_free[pages[full].long(), :rest] = False
    # Pages at a time: a mask of the whole would copy the cache.
    for page in is_free.any(1).nonzero().flatten().tolist():
        cache[page, is_free[page]] = value
    return cache


def dense(cache: Tensor, block_table: Tensor, length: int) -> Tensor:
    """Sequences of one length, page by page in their order: [B, length, ...]; for peers that know no pages."""
    needed = block_table[:, : -(-length // cache.shape[1])].long()
    return cache[needed].flatten(1, 2)[:, :length]


def dense_heads(cache: PagedCache, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(keys, values) [B, Hkv, length, D] of sequences of one length, without pages and scales; for peers."""
    like, found = torch.uint8 if cache.is_codes else cache.keys.dtype, []
    for tensor in (cache.keys, cache.values):
        rows = dense(tensor.view(like), cache.block_table, length).view(tensor.dtype)
        found.append(rows.to(dtype).transpose(1, 2).contiguous())
    return found[0], found[1]


def paged_cache(
    draw: Draw,
    seq_lens: list[int],
    num_kv_heads: int,
    head_size: int,
    page_size: int,
    dtype: torch.dtype,
    num_scales: int = 1,
) -> PagedCache:
    """Normal keys and values; codes of about 40 and scales of about 1 / 40, `num_scales` of them; 0: per token, and
    of int8 with minima.
    """
    table, seq_lens_tensor, num_pages = page_tables(seq_lens, page_size, draw.device)
    is_codes, found = dtype in CODES, []
    for _ in ("keys", "values"):
        rows = draw.normal(num_pages, page_size, num_kv_heads, head_size, dtype=torch.float16)
        rows = (rows * 40).clamp_(-127, 127).to(dtype) if is_codes else rows.to(dtype)
        # NaN, or the largest integer: as a byte 127 is either.
        poison(rows.view(torch.uint8) if is_codes else rows, table, seq_lens, 127 if is_codes else torch.nan)
        found.append(rows)
    keys, values = found
    if num_scales or not is_codes:
        scales = [draw.uniform(num_scales, low=0.5, high=1.5) / 40 if is_codes else None for _ in found]
    else:
        of_tokens = [draw.uniform(num_pages, page_size, num_kv_heads, low=0.5, high=1.5) / 40 for _ in found]
        if dtype == torch.int8:
            minima = [draw.uniform(*scale.shape, low=-4.0, high=-2.0) for scale in of_tokens]
            of_tokens = [torch.stack(pair, -1).half() for pair in zip(of_tokens, minima, strict=True)]
        scales = [poison(scale, table, seq_lens, torch.nan) for scale in of_tokens]
    key_scale, value_scale = scales
    return PagedCache(keys, values, key_scale, value_scale, block_table=table, seq_lens=seq_lens_tensor)


def with_head_lengths(cache: PagedCache) -> PagedCache:
    """The cache with a length for each key-value head: head g has 9 g tokens fewer than its sequence, at least 0."""
    less = 9 * torch.arange(cache.num_kv_heads, dtype=torch.int32, device=cache.seq_lens.device)
    return replace(cache, seq_lens=(cache.seq_lens[:, None] - less).clamp(min=0))


def sequence_bounds(sizes: Iterable[int], device: str) -> Tensor:
    """[B + 1] int32: the beginning of each of B consecutive sequences, and the end of the last one."""
    return torch.tensor([0, *accumulate(sizes)], dtype=torch.int32, device=device)
