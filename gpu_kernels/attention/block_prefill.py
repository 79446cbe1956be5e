"""Attention of a prompt over listed blocks of its keys: sparse prefill. The maths is in textbook.py.

    query t sees token s   if s <= t and s // KEY_BLOCK is in the list of query block t // QUERY_BLOCK of its head

All tokens of the prompt are queries. A query that sees nothing gets zeros and lse = -inf. Lists are in compressed rows:
list i of row l is indices[offsets[l, i] : offsets[l, i + 1]]. A NaN or inf in a listed block may reach queries that do
not see it.
"""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.attention.checks import (
    check_dtype,
    check_one_device,
    check_rows,
    check_shape,
    check_supported,
    empty_results,
)
from gpu_kernels.attention.paged import QUERY_DTYPES
from gpu_kernels.attention.textbook import Attended, attend, beside
from gpu_kernels.dispatch import results_of

QUERY_BLOCK = KEY_BLOCK = 128  # tokens
HEAD_SIZES = (64, 96, 128)


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of one call.

    query         [T, H, D] bfloat16 or float16
    keys, values  [T, Hkv, D], of the query's dtype; H % Hkv == 0
    offsets       [L, N + 1] int32, dense, N blocks of queries; L is 1 if all heads share their lists, else H
    indices       [n] int32, dense: blocks of keys. Its values are not checked: that would wait for the GPU
    raises        TypeError (dtypes), ValueError (shapes, strides, devices), NotImplementedError (sizes)
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    offsets: Tensor
    indices: Tensor
    softmax_scale: float

    def __post_init__(self) -> None:
        op, query, keys, values = "block_prefill", self.query, self.keys, self.values
        check_dtype(op, "query", query, QUERY_DTYPES)
        check_shape(op, "query", query, [None, None, None], "T H D")
        num_tokens, num_heads, head_size = query.shape
        for name, tensor in (("keys", keys), ("values", values)):
            check_dtype(op, name, tensor, (query.dtype,))
            check_shape(op, name, tensor, [num_tokens, None, head_size], "T Hkv D")
        if keys.shape != values.shape or not keys.shape[1] or num_heads % keys.shape[1]:
            raise ValueError(f"{op}: got {num_heads} heads over {keys.shape[1]} and {values.shape[1]}, expected groups")
        check_supported(op, "head size", head_size, HEAD_SIZES)
        for name, tensor in (("offsets", self.offsets), ("indices", self.indices)):
            check_dtype(op, name, tensor, (torch.int32,))
            if not tensor.is_contiguous():
                raise ValueError(f"{op}: got {name} with strides {list(tensor.stride())}, expected it dense")
        check_shape(op, "offsets", self.offsets, [None, -(-num_tokens // QUERY_BLOCK) + 1], "L N+1")
        check_shape(op, "indices", self.indices, [None], "n")
        check_supported(op, "number of lists", self.offsets.shape[0], (1, num_heads))
        check_one_device(op, {"query": query, "keys": keys, "values": values, "offsets": self.offsets})
        check_one_device(op, {"query": query, "indices": self.indices})
        check_rows(op, {"query": query, "keys": keys, "values": values})

    @property
    def group(self) -> int:
        """Heads that share a key-value head."""
        return self.query.shape[1] // self.keys.shape[1]

    def empty(self) -> tuple[Tensor, Tensor]:
        """(out [T, H, D], lse [T, H]), to be written"""
        return empty_results(self.query, self.query.shape[2])

    def visible(self, head: int) -> Tensor:
        """[T, T] bool: whether a query of this head sees a token"""
        num_tokens, row = self.query.shape[0], self.offsets[head if len(self.offsets) > 1 else 0].tolist()
        blocks = torch.zeros(len(row) - 1, -(-num_tokens // KEY_BLOCK), dtype=torch.bool)
        for block, (start, end) in enumerate(itertools.pairwise(row)):
            blocks[block, self.indices[start:end].long().cpu()] = True
        tokens = blocks.repeat_interleave(QUERY_BLOCK, 0).repeat_interleave(KEY_BLOCK, 1)
        return tokens[:num_tokens, :num_tokens].tril().to(self.query.device)


def block_prefill_ref(operands: Operands) -> Attended:
    """The textbook's result in float64, head by head."""
    query, keys, values, found = operands.query, operands.keys, operands.values, []
    for head in range(query.shape[1]):
        own, shared = slice(head, head + 1), slice(head // operands.group, head // operands.group + 1)
        visible = operands.visible(head)
        found.append(attend(query[:, own], keys[:, shared], values[:, shared], visible, operands.softmax_scale))
    return beside(found)


def block_prefill(operands: Operands, impl: str | None = None) -> tuple[Tensor, Tensor]:
    """(out [T, H, D] in the query's dtype, lse [T, H] float32), by the table's first entry or by `impl`."""
    return results_of("block_prefill", operands, impl)


def block_prefill_reference(operands: Operands, out: Tensor, lse: Tensor) -> None:
    """Writes the oracle's result into out and lse: the table's entry "reference"."""
    block_prefill_ref(operands).write(out, lse)
