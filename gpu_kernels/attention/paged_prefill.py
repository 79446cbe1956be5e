"""Attention of many new tokens a sequence over paged keys and values, which hold them; the maths is in textbook.py.

Sequences of unlike numbers of new tokens stand one after the other: those of sequence b are rows cu_queries[b] to
cu_queries[b + 1]. They are its last tokens, each sees itself and what is before it, or of these the last `window`.
A NaN or inf within a sequence's length may reach queries that stand before it.

source  Dao 2023, arXiv:2307.08691, algorithm 1 (tiles with an online softmax)
"""

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from gpu_kernels.attention.checks import check_sequences, check_shape, empty_results
from gpu_kernels.attention.paged import PagedCache, check_cache, check_sinks, scale_of
from gpu_kernels.attention.textbook import Attended, attend, concatenate, visible_tokens
from gpu_kernels.dispatch import results_of


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of one call.

    query          [tokens, H, D] bfloat16 or float16; D one of paged.HEAD_SIZES
    cu_queries     [B + 1] int32, dense, rising from 0 to tokens
    cache          of B sequences and Hkv heads, H % Hkv == 0; the new tokens are in it and in its seq_lens
    softmax_scale  default D**-0.5
    window         a query sees this many tokens at most, itself among them
    sinks          [H] float: a logit for each head, which takes its share of the softmax and has no value
    most_queries   no sequence has more; default tokens. Programs past a sequence's own end at once
    raises         TypeError (dtypes), ValueError (shapes, strides, devices), NotImplementedError (sizes)
    """

    query: Tensor
    cu_queries: Tensor
    cache: PagedCache
    softmax_scale: float | None = None
    window: int | None = None
    sinks: Tensor | None = None
    most_queries: int | None = None

    def __post_init__(self) -> None:
        op, query = "paged_prefill", self.query
        check_shape(op, "query", query, [None, None, None], "tokens H D")
        check_cache(op, query, self.cache)
        check_sequences(op, "cu_queries", query, self.cu_queries, self.cache.seq_lens.shape[0])
        check_sinks(op, query, self.sinks, self.window)

    def empty(self) -> tuple[Tensor, Tensor]:
        """(out [tokens, H, D], lse [tokens, H]), to be written"""
        return empty_results(self.query, self.query.shape[-1])


def paged_prefill_ref(operands: Operands) -> Attended:
    """The textbook's result in float64, sequence by sequence."""
    scale, rows = scale_of(operands.query, operands.softmax_scale), []
    for index, (first, last) in enumerate(pairwise(operands.cu_queries.tolist())):
        keys, values = operands.cache.sequence(index)
        visible = visible_tokens(last - first, len(keys), operands.window, keys.device)
        rows.append(attend(operands.query[first:last], keys, values, visible, scale, operands.sinks))
    return concatenate(rows)


def paged_prefill(operands: Operands, impl: str | None = None) -> tuple[Tensor, Tensor]:
    """(out [tokens, H, D] in the query's dtype, lse [tokens, H] float32), by the table's first entry or by `impl`."""
    return results_of("paged_prefill", operands, impl)


def paged_prefill_reference(operands: Operands, out: Tensor, lse: Tensor) -> None:
    """Writes the oracle's result into out and lse: the table's entry "reference"."""
    paged_prefill_ref(operands).write(out, lse)
