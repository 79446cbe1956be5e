"""Attention of a few new tokens a sequence over paged keys and values of grouped heads; the maths is in textbook.py.

The queries are the last tokens of their sequence: query i of Q sees the first length - (Q - 1 - i) tokens, or of these
the last `window`. Codes are multiplied as they are, and scaled per tensor or per head of keys and values. A NaN or inf
within a sequence's length may reach each of its queries.
"""

import torch
from torch import Tensor

from gpu_kernels.attention.checks import check_shape
from gpu_kernels.attention.paged import PagedCache, check_cache, check_sinks
from gpu_kernels.attention.textbook import Attended, attend, stack, visible_tokens
from gpu_kernels.dispatch import implementation

MAX_QUERIES = 16


def paged_decode_ref(
    query: Tensor,
    cache: PagedCache,
    *,
    softmax_scale: float | None = None,
    window: int | None = None,
    sinks: Tensor | None = None,
) -> Attended:
    """The textbook's result in float64, sequence by sequence; operands as of `paged_decode`."""
    scale = query.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    rows = []
    for index, each in enumerate(query):
        keys, values = cache.sequence(index)
        visible = visible_tokens(query.shape[1], keys.shape[0], window, query.device)
        rows.append(attend(each, keys, values, visible, scale, sinks))
    return stack(rows)


def paged_decode(
    query: Tensor,
    cache: PagedCache,
    *,
    softmax_scale: float | None = None,
    window: int | None = None,
    sinks: Tensor | None = None,
    max_length: int | None = None,
    num_kv_splits: int | None = None,
    impl: str | None = None,
) -> tuple[Tensor, Tensor]:
    """(out [B, Q, H, D] in the query's dtype, lse [B, Q, H] float32), by the table's first entry for the device.

    query          [B, Q, H, D] bfloat16 or float16; 1 <= Q <= MAX_QUERIES; D one of paged.HEAD_SIZES
    cache          of B sequences and Hkv heads, H % Hkv == 0
    softmax_scale  default D**-0.5
    window         a query sees this many tokens at most, itself among them
    sinks          [H] float: a logit for each head, which takes its share of the softmax and has no value
    max_length     no sequence is longer: chooses the split; default as long as the block table allows
    num_kv_splits  parts that a sequence is split into; default as `splits.num_kv_splits` says
    raises         TypeError (dtypes), ValueError (shapes, strides, devices), NotImplementedError (sizes, Q, GPU)
    """
    _check(query, cache, sinks, window, num_kv_splits)
    run = implementation("paged_decode", query.device.type, impl)
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)  # [B, Q, H, D]
    lse = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)  # [B, Q, H]
    if lse.numel():
        scale = query.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
        longest = cache.max_length if max_length is None else min(max_length, cache.max_length)
        run(query, cache, scale, window, sinks, longest, num_kv_splits, out, lse)
    return out, lse


def paged_decode_reference(
    query: Tensor,
    cache: PagedCache,
    softmax_scale: float,
    window: int | None,
    sinks: Tensor | None,
    max_length: int,
    num_kv_splits: int | None,
    out: Tensor,
    lse: Tensor,
) -> None:
    """Writes the oracle's result into out and lse: the table's entry "reference", which has nothing to split."""
    attended = paged_decode_ref(query, cache, softmax_scale=softmax_scale, window=window, sinks=sinks)
    out.copy_(attended.out)
    lse.copy_(attended.lse)


def _check(
    query: Tensor, cache: PagedCache, sinks: Tensor | None, window: int | None, num_kv_splits: int | None
) -> None:
    op = "paged_decode"
    check_shape(op, "query", query, [None, None, None, None], "B Q H D")
    check_cache(op, query, cache)
    check_shape(op, "query", query, [cache.lengths.shape[0], None, None, None], "B Q H D")
    check_sinks(op, query, sinks, window)
    if not 1 <= query.shape[1] <= MAX_QUERIES:
        raise NotImplementedError(f"{op}: got {query.shape[1]} new tokens a sequence, expected 1 to {MAX_QUERIES}")
    if num_kv_splits is not None and num_kv_splits < 1:
        raise ValueError(f"{op}: got num_kv_splits {num_kv_splits}, expected at least 1")
