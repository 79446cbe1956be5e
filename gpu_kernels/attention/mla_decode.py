"""Attention of a few new tokens over MLA's cached latents, absorbed: every head reads one and the same cache.

    key[t]         = (latent[t], rope[t])                           512 + 64 numbers per token, of all heads
    score[q, h, t] = softmax_scale * query[q, h] . key[t]           the query is multiplied by W_UK already
    out[q, h]      = sum_t softmax(score)[t] * latent[t]            W_UV comes after

The queries are the last tokens of their sequence: query i of Q sees the first length - (Q - 1 - i) tokens. A query that
sees no token gets zeros and lse = -inf. A NaN or inf within a sequence's length may reach each of its queries. In FP8,
latents are codes times scales, in float32.

source  DeepSeek-AI 2024, arXiv:2405.04434, section 2.1 and appendix C (absorption into the other projections)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.attention.checks import (
    check_decode,
    check_dtype,
    check_one_device,
    check_rows,
    check_shape,
    empty_results,
)
from gpu_kernels.attention.paged import QUERY_DTYPES, PagedSequences
from gpu_kernels.attention.textbook import Attended, attend, gather_pages, stack, visible_tokens
from gpu_kernels.dispatch import results_of

LATENT_SIZE, ROPE_SIZE = 512, 64
HEAD_SIZE = LATENT_SIZE + ROPE_SIZE
# A token in FP8: 512 e4m3 codes, 4 float32 scales (one for 128 codes), 64 bfloat16 rotated channels.
FP8_BYTES = LATENT_SIZE + 4 * 4 + 2 * ROPE_SIZE


@dataclass(frozen=True, slots=True)
class Operands(PagedSequences):
    """The inputs of one call.

    query          [B, Q, H, 576] bfloat16 or float16; 1 <= Q <= checks.MAX_QUERIES, any number of heads
    cache          [num_pages, page_size, 576] of the query's dtype, or [num_pages, page_size, 656] uint8 (FP8)
    max_seq_len    no sequence is longer: chooses the split; default P * page_size
    num_kv_splits  parts that a sequence is split into; default as `splits.num_kv_splits` says
    raises         TypeError (dtypes), ValueError (shapes, strides, devices), NotImplementedError (page size, Q)
    """

    query: Tensor
    cache: Tensor
    softmax_scale: float
    max_seq_len: int | None = None
    num_kv_splits: int | None = None

    def __post_init__(self) -> None:
        op, query, cache = "mla_decode", self.query, self.cache
        check_dtype(op, "query", query, QUERY_DTYPES)
        check_dtype(op, "cache", cache, (query.dtype, torch.uint8))
        check_shape(op, "query", query, [None, None, None, HEAD_SIZE], "B Q H 576")
        width = FP8_BYTES if self.is_fp8 else HEAD_SIZE
        check_shape(op, "cache", cache, [None, None, width], f"num_pages page_size {width}")
        self.check_pages(op, query.shape[0], cache.shape[1])
        check_shape(op, "seq_lens", self.seq_lens, [query.shape[0]], "B")
        pages = {"block_table": self.block_table, "seq_lens": self.seq_lens}
        check_one_device(op, {"query": query, "cache": cache} | pages)
        check_rows(op, {"query": query, "cache": cache})
        check_decode(op, query.shape[1], self.num_kv_splits)

    @property
    def is_fp8(self) -> bool:
        return self.cache.dtype == torch.uint8

    @property
    def num_rows(self) -> int:
        """Queries of a sequence times heads."""
        return self.query.shape[1] * self.query.shape[2]

    @property
    def longest(self) -> int:
        """The number of tokens that no sequence exceeds."""
        longest = self.block_table.shape[1] * self.cache.shape[1]
        return longest if self.max_seq_len is None else min(self.max_seq_len, longest)

    def empty(self) -> tuple[Tensor, Tensor]:
        """(out [B, Q, H, 512], lse [B, Q, H]), to be written"""
        return empty_results(self.query, LATENT_SIZE)


def mla_decode_ref(operands: Operands) -> Attended:
    """The textbook's result in float64, sequence by sequence."""
    rows = []
    for query, pages, length in zip(operands.query, operands.block_table, operands.seq_lens.tolist(), strict=True):
        keys = decode_tokens(gather_pages(operands.cache, pages, length), query.dtype)[:, None]  # [T, 1, 576]
        visible = visible_tokens(len(query), length, device=query.device)
        rows.append(attend(query, keys, keys[..., :LATENT_SIZE], visible, operands.softmax_scale))
    return stack(rows)


def decode_tokens(tokens: Tensor, dtype: torch.dtype) -> Tensor:
    """Tokens [T, 576] of a cache: numbers [T, 576] as they are, or float32 of FP8 [T, 656] uint8. Rotated channels of
    FP8 are rounded to dtype, in which they are multiplied.
    """
    if tokens.dtype != torch.uint8:
        return tokens
    codes, scale, rope = tokens.split([LATENT_SIZE, 16, 2 * ROPE_SIZE], dim=-1)
    latent = codes.contiguous().view(torch.float8_e4m3fn).float().unflatten(-1, (4, 128))
    latent = latent * scale.contiguous().view(torch.float32)[..., None]
    return torch.cat([latent.flatten(-2), rope.contiguous().view(torch.bfloat16).to(dtype).float()], dim=-1)


def mla_decode(operands: Operands, impl: str | None = None) -> tuple[Tensor, Tensor]:
    """(out [B, Q, H, 512] in the query's dtype, lse [B, Q, H] float32), by the table's first entry or by `impl`."""
    return results_of("mla_decode", operands, impl)


def mla_decode_reference(operands: Operands, out: Tensor, lse: Tensor) -> None:
    """Writes the oracle's result into out and lse: the table's entry "reference", which has nothing to split."""
    mla_decode_ref(operands).write(out, lse)
