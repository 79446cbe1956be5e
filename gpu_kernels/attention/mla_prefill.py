"""MLA's other plan, for many new tokens: latents are expanded to each head's keys and values, and nothing is absorbed.

    key[t, h]   = (W_UK latent[t])[h] joined with rope[t]      128 + 64 channels
    value[t, h] = (W_UV latent[t])[h]                     128 channels

A token costs a head 2 * (192 + 128) operations per query here, and 2 * (576 + 512) in mla_decode.py, which need not
expand the cache: so this is for prompts, and that for a few tokens over a long cache. The keys and values of sequence b
are rows cu_keys[b] to cu_keys[b + 1], the new tokens last; their queries are rows cu_queries[b] to cu_queries[b + 1]. A
NaN or inf among a sequence's keys may reach queries before it.

source  DeepSeek-AI 2024, arXiv:2405.04434, section 2.1
"""

from dataclasses import dataclass

from torch import Tensor

from gpu_kernels.attention.checks import (
    check_dtype,
    check_one_device,
    check_rows,
    check_sequences,
    check_shape,
    check_supported,
    empty_results,
)
from gpu_kernels.attention.paged import QUERY_DTYPES
from gpu_kernels.attention.textbook import Attended, attend, concatenate, visible_tokens
from gpu_kernels.dispatch import results_of

KEY_SIZES, VALUE_SIZES = (192,), (128,)


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of one call.

    query         [tokens, H, 192] bfloat16 or float16
    keys          [key tokens, H, 192], values [key tokens, H, 128], of the query's dtype
    cu_queries    [B + 1] int32, dense, rising from 0 to tokens
    cu_keys       [B + 1] int32, dense, rising from 0 to key tokens
    most_queries  no sequence has more; default tokens. Programs past a sequence's own end at once
    raises        TypeError (dtypes), ValueError (shapes, strides, devices), NotImplementedError (sizes)
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    cu_queries: Tensor
    cu_keys: Tensor
    softmax_scale: float
    most_queries: int | None = None

    def __post_init__(self) -> None:
        op, query, keys, values = "mla_prefill", self.query, self.keys, self.values
        check_dtype(op, "query", query, QUERY_DTYPES)
        check_dtype(op, "keys", keys, (query.dtype,))
        check_dtype(op, "values", values, (query.dtype,))
        check_shape(op, "query", query, [None, None, None], "tokens H 192")
        check_shape(op, "keys", keys, [None, *query.shape[1:]], "tokens H 192")
        check_shape(op, "values", values, [keys.shape[0], query.shape[1], None], "tokens H 128")
        check_one_device(op, {"query": query, "keys": keys, "values": values})
        check_sequences(op, "cu_queries", query, self.cu_queries, self.cu_keys.shape[0] - 1)
        check_sequences(op, "cu_keys", query, self.cu_keys, self.cu_queries.shape[0] - 1)
        check_rows(op, {"query": query, "keys": keys, "values": values})
        check_supported(op, "key size", query.shape[2], KEY_SIZES)
        check_supported(op, "value size", values.shape[2], VALUE_SIZES)

    def empty(self) -> tuple[Tensor, Tensor]:
        """(out [tokens, H, 128], lse [tokens, H]), to be written"""
        return empty_results(self.query, self.values.shape[-1])


def mla_prefill_ref(operands: Operands) -> Attended:
    """The textbook's result in float64, sequence by sequence."""
    query, scale, rows = operands.query, operands.softmax_scale, []
    queries, tokens = operands.cu_queries.tolist(), operands.cu_keys.tolist()
    for index in range(len(queries) - 1):
        mine, seen = slice(*queries[index : index + 2]), slice(*tokens[index : index + 2])
        visible = visible_tokens(mine.stop - mine.start, seen.stop - seen.start, device=query.device)
        rows.append(attend(query[mine], operands.keys[seen], operands.values[seen], visible, scale))
    return concatenate(rows)


def mla_prefill(operands: Operands, impl: str | None = None) -> tuple[Tensor, Tensor]:
    """(out [tokens, H, 128] in the query's dtype, lse [tokens, H] float32), by the table's first entry or by `impl`."""
    return results_of("mla_prefill", operands, impl)


def mla_prefill_reference(operands: Operands, out: Tensor, lse: Tensor) -> None:
    """Writes the oracle's result into out and lse: the table's entry "reference"."""
    mla_prefill_ref(operands).write(out, lse)
