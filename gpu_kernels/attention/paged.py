"""Common code of the ops over paged keys and values: forms of the cache, checks, and pages as the oracle reads them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.attention.checks import check_dtype, check_one_device, check_rows, check_shape, check_supported
from gpu_kernels.attention.textbook import gather_pages

QUERY_DTYPES = (torch.bfloat16, torch.float16)
# 8-bit codes -> the kernel's word for them; real = scale * code.
CODES = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2", torch.int8: "int8"}
HEAD_SIZES = (64, 80, 96, 128, 256)
PAGE_SIZES = (16, 32, 64, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedSequences:
    """The pages and lengths of B sequences.

    block_table   [B, P] int32; of a sequence of length n the first ceil(n / page_size) entries are read
    seq_lens      [B] int32, the new tokens counted, from 0 to P * page_size
    """

    block_table: Tensor
    seq_lens: Tensor

    def check_pages(self, op: str, batch: int | None, page_size: int) -> None:
        """Raises TypeError (dtypes), ValueError (table of another batch) and NotImplementedError (page size)."""
        check_dtype(op, "block_table", self.block_table, (torch.int32,))
        check_dtype(op, "seq_lens", self.seq_lens, (torch.int32,))
        check_shape(op, "block_table", self.block_table, [batch, None], "B P")
        check_supported(op, "page size", page_size, PAGE_SIZES)


@dataclass(frozen=True, slots=True)
class PagedCache(PagedSequences):
    """The keys and values of all sequences.

    keys, values             [num_pages, page_size, Hkv, D], any order of axes but the last
                             of the query's dtype, or of codes: float8_e4m3fn, float8_e5m2, int8
    seq_lens                 [B, Hkv] if each key-value head has a length of its own
    key_scale, value_scale   [1] or [Hkv] float32, or [num_pages, page_size, Hkv], dense, for codes alone
                             of int8 also [num_pages, page_size, Hkv, 2] float16: scale and minimum of each token, for
                             real = scale * (code + 128) + minimum
    """

    keys: Tensor
    values: Tensor
    key_scale: Tensor | None = None
    value_scale: Tensor | None = None

    @property
    def page_size(self) -> int:
        return self.keys.shape[1]

    @property
    def max_seq_len(self) -> int:
        return self.block_table.shape[1] * self.page_size

    @property
    def is_codes(self) -> bool:
        return self.keys.dtype in CODES

    @property
    def has_head_scales(self) -> bool:
        """Whether each key-value head has a scale of its own."""
        return self.key_scale is not None and self.key_scale.shape[-1] > 1

    @property
    def has_token_scales(self) -> bool:
        """Whether each token has a scale of its own for each key-value head."""
        return self.key_scale is not None and self.key_scale.dim() > 2

    @property
    def has_minima(self) -> bool:
        """Whether each token has a minimum next to its scale."""
        return self.key_scale is not None and self.key_scale.dim() == 4

    @property
    def scale_strides(self) -> tuple[int, ...]:
        """Strides of pages, tokens and heads, in scales; 0 if all share one."""
        if self.key_scale is None or not self.has_token_scales:
            return 0, 0, int(self.has_head_scales)
        return scale_words(self.key_scale).stride()

    @property
    def num_kv_heads(self) -> int:
        return self.keys.shape[2]

    @property
    def has_head_lengths(self) -> bool:
        """Whether each key-value head of a sequence has a length of its own."""
        return self.seq_lens.dim() == 2

    def pieces(self, index: int) -> list[tuple[slice, int]]:
        """(key-value heads, their length) of one sequence: all heads, or one at a time with `has_head_lengths`."""
        if self.has_head_lengths:
            return [(slice(g, g + 1), length) for g, length in enumerate(self.seq_lens[index].tolist())]
        return [(slice(0, self.num_kv_heads), int(self.seq_lens[index]))]

    def read(self, index: int, heads: slice, length: int) -> tuple[Tensor, Tensor]:
        """(keys, values) [length, heads, D] float64 of a piece of one sequence, scaled."""
        terms = self._terms(index, heads, length)
        return terms[0].sum(0), terms[1].sum(0)

    def sizes(self, index: int, heads: slice, length: int) -> tuple[Tensor, Tensor] | None:
        """As `read`, the magnitudes of the terms that a kernel adds; None: those of keys and values."""
        if not self.has_minima:
            return None
        terms = self._terms(index, heads, length)
        return terms[0].abs().sum(0), terms[1].abs().sum(0)

    def _terms(self, index: int, heads: slice, length: int) -> list[Tensor]:
        """[n, length, heads, D] float64 of keys and of values, whose sum over n they are."""
        pages, found = self.block_table[index], []
        for codes, scale in ((self.keys, self.key_scale), (self.values, self.value_scale)):
            rows = gather_pages((codes.view(torch.uint8) if self.is_codes else codes)[:, :, heads], pages, length)
            rows = rows.view(codes.dtype).double()
            if scale is not None and self.has_minima:
                factor, minimum = gather_pages(scale[:, :, heads], pages, length).double()[..., None, :].unbind(-1)
                found.append(torch.stack([rows * factor, (minimum + 128 * factor).expand_as(rows)]))
                continue
            if scale is not None:
                some = scale[..., heads] if self.has_head_scales else scale
                some = gather_pages(some, pages, length) if self.has_token_scales else some
                rows = rows * some.double()[..., None]
            found.append(rows[None])
        return found


def scale_words(scale: Tensor) -> Tensor:
    """A scale and a minimum of 16 bits each in one int32, the scale below; other scales as they are."""
    return scale.view(torch.int32).squeeze(3) if scale.dim() == 4 else scale


def check_cache(op: str, query: Tensor, cache: PagedCache) -> None:
    """query [..., H, D] and cache fit each other.

    raises  TypeError (dtypes), ValueError (shapes, strides, devices), NotImplementedError (head and page sizes)
    """
    check_dtype(op, "query", query, QUERY_DTYPES)
    check_dtype(op, "keys", cache.keys, (query.dtype, *CODES))
    check_dtype(op, "values", cache.values, (cache.keys.dtype,))
    head_size = query.shape[-1]
    check_shape(op, "keys", cache.keys, [None, None, None, head_size], f"num_pages page_size Hkv {head_size}")
    check_shape(op, "values", cache.values, list(cache.keys.shape), "num_pages page_size Hkv D")
    cache.check_pages(op, None, cache.page_size)
    batch, num_kv_heads = cache.block_table.shape[0], cache.keys.shape[2]
    lengths = [batch, num_kv_heads] if cache.has_head_lengths else [batch]
    check_shape(op, "seq_lens", cache.seq_lens, [*lengths], "B Hkv")
    if num_kv_heads == 0 or query.shape[-2] % num_kv_heads:
        raise ValueError(f"{op}: got {query.shape[-2]} heads over {num_kv_heads} of keys, expected a multiple")
    scales = {"key_scale": cache.key_scale, "value_scale": cache.value_scale}
    for name, scale in scales.items():
        if (scale is not None) != cache.is_codes:
            raise ValueError(f"{op}: got {cache.keys.dtype} and {name} {scale}, expected scales with 8-bit codes alone")
        if scale is not None:
            _check_scale(op, name, scale, cache)
    key_scale, value_scale = cache.key_scale, cache.value_scale
    if key_scale is not None and value_scale is not None and key_scale.shape != value_scale.shape:
        shapes = f"{list(key_scale.shape)} and {list(value_scale.shape)}"
        raise ValueError(f"{op}: got scales {shapes}, expected both alike")
    tensors = {"query": query, "keys": cache.keys, "values": cache.values}
    check_one_device(op, tensors | {"block_table": cache.block_table, "seq_lens": cache.seq_lens} | scales)
    check_rows(op, tensors)
    check_supported(op, "head size", head_size, HEAD_SIZES)


def _check_scale(op: str, name: str, scale: Tensor, cache: PagedCache) -> None:
    of_tokens = list(cache.keys.shape[:3])
    shapes = [[1], [cache.num_kv_heads], of_tokens]
    if cache.keys.dtype == torch.int8 and scale.dim() == 4:
        check_dtype(op, name, scale, (torch.float16,))
        shapes = [[*of_tokens, 2]]
    else:
        check_dtype(op, name, scale, (torch.float32,))
    if list(scale.shape) not in shapes or not scale.is_contiguous():
        expected = " or ".join(map(str, shapes))
        raise ValueError(f"{op}: got {name} {list(scale.shape)}, expected dense {expected}")


def check_sinks(op: str, query: Tensor, sinks: Tensor | None) -> None:
    if sinks is not None:
        check_dtype(op, "sinks", sinks, (torch.float32, *QUERY_DTYPES))
        check_shape(op, "sinks", sinks, [query.shape[-2]], "H")
        check_one_device(op, {"query": query, "sinks": sinks})
        if not sinks.is_contiguous():
            raise ValueError(f"{op}: got sinks with strides {list(sinks.stride())}, expected them dense")
