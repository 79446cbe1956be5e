"""Attention of a few new tokens per sequence over paged keys and values of grouped heads; the maths is in textbook.py.

The queries are the last tokens of their sequence: query i of Q sees the first length - (Q - 1 - i) tokens, or of these
the last `window`. The mass of a token is 0 from the end of its sequence on. Codes are multiplied as they are, and
scaled per tensor or per head of keys and values. A NaN or inf within a sequence's length may reach each of its queries.
"""

from dataclasses import dataclass

from torch import Tensor

from gpu_kernels.attention.checks import check_decode, check_shape
from gpu_kernels.attention.paged_attention import AttentionOperands
from gpu_kernels.attention.textbook import Attended, stack
from gpu_kernels.dispatch import results_of


@dataclass(frozen=True, slots=True)
class Operands(AttentionOperands):
    """The inputs of one call.

    query          [B, Q, H, D], 1 <= Q <= checks.MAX_QUERIES
    max_seq_len    no sequence is longer: chooses the split and the mass's slots; default as the block table allows
    num_kv_splits  parts that a sequence is split into; default as `splits.num_kv_splits` says
    raises         TypeError (dtypes), ValueError (shapes, strides, devices), NotImplementedError (sizes, Q)
    """

    max_seq_len: int | None = None
    num_kv_splits: int | None = None

    def __post_init__(self) -> None:
        op, query = "paged_decode", self.query
        self.check(op, "B Q H D")
        check_shape(op, "query", query, [self.cache.seq_lens.shape[0], None, None, None], "B Q H D")
        check_decode(op, query.shape[1], self.num_kv_splits)

    @property
    def num_rows(self) -> int:
        """Queries of a sequence times heads of a group."""
        return self.query.shape[1] * self.query.shape[2] // self.cache.keys.shape[2]

    @property
    def most_seen(self) -> int:
        """The number of tokens that the queries of no sequence exceed together."""
        longest = self.num_slots
        return longest if self.window is None else min(longest, self.window + self.query.shape[1] - 1)

    @property
    def num_slots(self) -> int:
        longest = self.cache.max_seq_len
        return longest if self.max_seq_len is None else min(self.max_seq_len, longest)


def paged_decode_ref(operands: Operands) -> Attended:
    """The textbook's result in float64, sequence by sequence."""
    return stack([operands.attended_ref(index, query) for index, query in enumerate(operands.query)])


def paged_decode(operands: Operands, impl: str | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
    """(out [B, Q, H, D] in the query's dtype, lse [B, Q, H], mass [B, Hkv, `num_slots`] float32 or None).

    impl  an entry of the table other than the first for the device
    """
    return results_of("paged_decode", operands, impl)


def paged_decode_reference(operands: Operands, out: Tensor, lse: Tensor, mass: Tensor | None) -> None:
    """Writes the oracle's results: the table's entry "reference", which has nothing to split."""
    paged_decode_ref(operands).write(out, lse, mass)
