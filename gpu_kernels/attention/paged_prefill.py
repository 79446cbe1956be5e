"""Attention of many new tokens per sequence over paged keys and values, which hold them; the maths is in textbook.py.

Sequences with different numbers of new tokens follow each other: those of sequence b are rows cu_queries[b] to
cu_queries[b + 1]. They are its last tokens, each sees itself and all tokens before it, or the last `window` of these.
A NaN or inf within a sequence's length may reach queries before it.

source  Dao 2023, arXiv:2307.08691, algorithm 1 (tiles with an online softmax)
"""

from dataclasses import dataclass, field
from itertools import pairwise

from torch import Tensor

from gpu_kernels.attention.checks import check_sequences
from gpu_kernels.attention.paged_attention import AttentionOperands
from gpu_kernels.attention.textbook import Attended, concatenate
from gpu_kernels.dispatch import results_of


@dataclass(frozen=True, slots=True)
class Operands(AttentionOperands):
    """The inputs of one call.

    query          [tokens, H, D]
    cu_queries     [B + 1] int32, dense, rising from 0 to tokens
    most_queries   no sequence has more; default tokens. Programs past a sequence's own end at once
    raises         TypeError (dtypes), ValueError (shapes, strides, devices), NotImplementedError (sizes)
    """

    cu_queries: Tensor = field(kw_only=True)
    most_queries: int | None = None

    def __post_init__(self) -> None:
        op = "paged_prefill"
        self.check(op, "tokens H D")
        check_sequences(op, "cu_queries", self.query, self.cu_queries, self.cache.seq_lens.shape[0])


def paged_prefill_ref(operands: Operands) -> Attended:
    """The textbook's result in float64, sequence by sequence."""
    bounds = pairwise(operands.cu_queries.tolist())
    return concatenate([operands.attended_ref(index, operands.query[slice(*two)]) for index, two in enumerate(bounds)])


def paged_prefill(operands: Operands, impl: str | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
    """(out [tokens, H, D] in the query's dtype, lse [tokens, H], mass [B, Hkv, `num_slots`] float32 or None).

    impl  an entry of the table other than the first for the device
    """
    return results_of("paged_prefill", operands, impl)


def paged_prefill_reference(operands: Operands, out: Tensor, lse: Tensor, mass: Tensor | None) -> None:
    """Writes the oracle's results: the table's entry "reference"."""
    paged_prefill_ref(operands).write(out, lse, mass)
