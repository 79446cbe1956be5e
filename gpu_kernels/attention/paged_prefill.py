"""Attention of many new tokens a sequence over paged keys and values, which hold them; the maths is in textbook.py.

Sequences of unlike numbers of new tokens stand one after the other: those of sequence b are rows cu_queries[b] to
cu_queries[b + 1]. They are its last tokens, each sees itself and what is before it, or of these the last `window`.
A NaN or inf within a sequence's length may reach queries that stand before it.

source  Dao 2023, arXiv:2307.08691, algorithm 1 (tiles with an online softmax)
"""

from itertools import pairwise

import torch
from torch import Tensor

from gpu_kernels.attention.checks import check_dtype, check_one_device, check_shape
from gpu_kernels.attention.paged import PagedCache, check_cache, check_sinks
from gpu_kernels.attention.textbook import Attended, attend, concatenate, visible_tokens
from gpu_kernels.dispatch import implementation


def paged_prefill_ref(
    query: Tensor,
    cu_queries: Tensor,
    cache: PagedCache,
    *,
    softmax_scale: float | None = None,
    window: int | None = None,
    sinks: Tensor | None = None,
) -> Attended:
    """The textbook's result in float64, sequence by sequence; operands as of `paged_prefill`."""
    scale = query.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    rows = []
    for index, (first, last) in enumerate(pairwise(cu_queries.tolist())):
        keys, values = cache.sequence(index)
        visible = visible_tokens(last - first, keys.shape[0], window, query.device)
        rows.append(attend(query[first:last], keys, values, visible, scale, sinks))
    return concatenate(rows)


def paged_prefill(
    query: Tensor,
    cu_queries: Tensor,
    cache: PagedCache,
    *,
    softmax_scale: float | None = None,
    window: int | None = None,
    sinks: Tensor | None = None,
    most_queries: int | None = None,
    impl: str | None = None,
) -> tuple[Tensor, Tensor]:
    """(out [tokens, H, D] in the query's dtype, lse [tokens, H] float32), by the table's first entry for the device.

    query          [tokens, H, D] bfloat16 or float16; D one of paged.HEAD_SIZES
    cu_queries     [B + 1] int32, dense, rising from 0 to tokens
    cache          of B sequences and Hkv heads, H % Hkv == 0; the new tokens are in it and in its lengths
    softmax_scale  default D**-0.5
    window         a query sees this many tokens at most, itself among them
    sinks          [H] float: a logit for each head, which takes its share of the softmax and has no value
    most_queries   no sequence has more; default tokens. Programs past a sequence's own end at once
    raises         TypeError (dtypes), ValueError (shapes, strides, devices), NotImplementedError (sizes, GPU)
    """
    op = "paged_prefill"
    check_shape(op, "query", query, [None, None, None], "tokens H D")
    check_cache(op, query, cache)
    check_sequences(op, "cu_queries", query, cu_queries, cache.lengths.shape[0])
    check_sinks(op, query, sinks, window)
    run = implementation(op, query.device.type, impl)
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)  # [tokens, H, D]
    lse = torch.empty(query.shape[:2], dtype=torch.float32, device=query.device)  # [tokens, H]
    if lse.numel():
        scale = query.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
        most = query.shape[0] if most_queries is None else min(most_queries, query.shape[0])
        run(query, cu_queries, cache, scale, window, sinks, most, out, lse)
    return out, lse


def check_sequences(op: str, name: str, rows: Tensor, bounds: Tensor, batch: int) -> None:
    """`bounds` [B + 1] int32 beside `rows`. What it holds is not looked at: that would wait for the GPU."""
    check_dtype(op, name, bounds, (torch.int32,))
    check_shape(op, name, bounds, [batch + 1], "B+1")
    check_one_device(op, {"query": rows, name: bounds})
    if not bounds.is_contiguous():
        raise ValueError(f"{op}: got {name} with strides {list(bounds.stride())}, expected it dense")


def paged_prefill_reference(
    query: Tensor,
    cu_queries: Tensor,
    cache: PagedCache,
    softmax_scale: float,
    window: int | None,
    sinks: Tensor | None,
    most_queries: int,
    out: Tensor,
    lse: Tensor,
) -> None:
    """Writes the oracle's result into out and lse: the table's entry "reference"."""
    options = {"softmax_scale": softmax_scale, "window": window, "sinks": sinks}
    attended = paged_prefill_ref(query, cu_queries, cache, **options)
    out.copy_(attended.out)
    lse.copy_(attended.lse)
