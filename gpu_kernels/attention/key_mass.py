"""The mass of tokens in pages from the lse of queries that have attended to them: no [T, S] matrix is stored.

    score[q, h, t] = softmax_scale * query[q, h] . key[t, g(h)]        g(h) = h // (num_heads / num_kv_heads)
    mass[b, g, t]  = sum over observed q and the heads h of group g of exp(score[q, h, t] - lse[q, h])

The queries are paged prefill's: the last tokens of their sequence, each sees itself and the tokens before it, or of
these the last `window`. The mass is 0 from the end of a sequence on. lse may count a sink, whose share no token gets.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from gpu_kernels.attention.checks import check_dtype, check_one_device, check_sequences, check_shape
from gpu_kernels.attention.paged_attention import PagedOperands
from gpu_kernels.attention.textbook import Mass, join_masses, mass_of, visible_tokens
from gpu_kernels.dispatch import implementation


@dataclass(frozen=True, slots=True)
class Operands(PagedOperands):
    """The inputs of one call.

    query         [tokens, H, D]
    cache         its values are not read
    mass_queries  of a sequence the last so many queries count; default all
    lse           [tokens, H] float32, dense, as paged prefill or paged decode returns it
    cu_queries    [B + 1] int32, dense, rising from 0 to tokens
    max_seq_len   no sequence is longer; default as long as the block table allows
    raises        TypeError (dtypes), ValueError (shapes, strides, devices), NotImplementedError (sizes)
    """

    lse: Tensor = field(kw_only=True)
    cu_queries: Tensor = field(kw_only=True)
    max_seq_len: int | None = None

    def __post_init__(self) -> None:
        op, lse = "key_mass", self.lse
        self.check(op, "tokens H D")
        check_sequences(op, "cu_queries", self.query, self.cu_queries, self.cache.seq_lens.shape[0])
        check_dtype(op, "lse", lse, (torch.float32,))
        check_shape(op, "lse", lse, list(self.query.shape[:2]), "tokens H")
        check_one_device(op, {"query": self.query, "lse": lse})
        if not lse.is_contiguous():
            raise ValueError(f"{op}: got lse with strides {list(lse.stride())}, expected it dense")

    @property
    def observed(self) -> int:
        """Queries of a sequence that count at most."""
        return len(self.query) if self.mass_queries is None else self.mass_queries

    def empty(self) -> Tensor:
        """mass [B, Hkv, `num_slots`] float32, to be written"""
        return self.empty_mass()

    @property
    def num_slots(self) -> int:
        longest = self.cache.max_seq_len
        return longest if self.max_seq_len is None else min(self.max_seq_len, longest)


def key_mass_ref(operands: Operands) -> Mass:
    """The textbook's result in float64, sequence by sequence: weight [B, Hkv, S]."""
    cache, group, sequences = operands.cache, operands.group, []
    for index, (first, last) in enumerate(pairwise(operands.cu_queries.tolist())):
        observed, found = slice(max(first, last - operands.observed), last), []
        for heads, length in cache.pieces(index):
            own = slice(heads.start * group, heads.stop * group)
            visible = visible_tokens(observed.stop - observed.start, length, operands.window, operands.query.device)
            (keys, _), sizes = cache.read(index, heads, length), cache.sizes(index, heads, length)
            rows, lse = operands.query[observed, own], operands.lse[observed, own]
            found.append(mass_of(rows, keys, lse, visible, operands.scale, operands.num_slots, sizes and sizes[0]))
        sequences.append(join_masses(found, torch.cat))
    mass = join_masses(sequences, torch.stack)
    assert mass is not None  # each sequence has one
    return mass


def key_mass(operands: Operands, impl: str | None = None) -> Tensor:
    """mass [B, Hkv, `num_slots`] float32, by the table's first entry or by `impl`."""
    mass = operands.empty()
    run = implementation("key_mass", mass.device.type, impl)
    if operands.query.numel():
        run(operands, mass)
    return mass


def key_mass_reference(operands: Operands, mass: Tensor) -> None:
    """Writes the oracle's result: the table's entry "reference"."""
    mass.copy_(key_mass_ref(operands).weight)
