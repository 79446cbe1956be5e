"""The operands of every op over a paged cache, and the textbook's result for one sequence."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gpu_kernels.attention.checks import check_shape, empty_results
from gpu_kernels.attention.paged import PagedCache, check_cache, check_sinks
from gpu_kernels.attention.textbook import Attended, attend, beside, mass_of, visible_tokens


@dataclass(frozen=True, slots=True)
class PagedOperands:
    """The inputs that every op over a paged cache has.

    query          [..., H, D] bfloat16 or float16; D one of paged.HEAD_SIZES
    cache          of B sequences and Hkv heads, H % Hkv == 0; the new tokens are in it and in its seq_lens
    softmax_scale  default D**-0.5
    window         a query sees this many tokens at most, itself among them
    mass_queries   the mass of each sequence's last so many queries is wanted; None: it is not
    """

    query: Tensor
    cache: PagedCache
    softmax_scale: float | None = None
    window: int | None = None
    mass_queries: int | None = None

    @property
    def group(self) -> int:
        """Heads that share one of keys and values."""
        return self.query.shape[-2] // self.cache.num_kv_heads

    @property
    def num_slots(self) -> int:
        """The number of slots of the mass: no sequence is longer."""
        return self.cache.max_seq_len

    @property
    def scale(self) -> float:
        """softmax_scale or its default."""
        return self.query.shape[-1] ** -0.5 if self.softmax_scale is None else self.softmax_scale

    def empty_mass(self) -> Tensor:
        """[B, Hkv, `num_slots`] float32, to be written; zeros if no query writes it"""
        shape = len(self.cache.seq_lens), self.cache.num_kv_heads, self.num_slots
        make = torch.empty if self.query.numel() else torch.zeros
        return make(shape, dtype=torch.float32, device=self.query.device)

    def check(self, op: str, axes: str) -> None:
        """axes  of the query: "B Q H D" """
        check_shape(op, "query", self.query, [None] * len(axes.split()), axes)
        check_cache(op, self.query, self.cache)
        if self.window is not None and self.window < 1:
            raise ValueError(f"{op}: got window {self.window}, expected at least 1 token, the query's own")
        if self.mass_queries is not None and self.mass_queries < 1:
            raise ValueError(f"{op}: got mass_queries {self.mass_queries}, expected at least 1")


@dataclass(frozen=True, slots=True)
class AttentionOperands(PagedOperands):
    """The inputs of attention over a paged cache.

    sinks          [H] float: a logit for each head, which takes its share of the softmax and has no value
    """

    sinks: Tensor | None = None

    def empty(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """(out [..., H, D], lse [..., H], mass [B, Hkv, `num_slots`] or None), to be written"""
        mass = None if self.mass_queries is None else self.empty_mass()
        return *empty_results(self.query, self.query.shape[-1]), mass

    def attended_ref(self, index: int, query: Tensor) -> Attended:
        """The textbook's result in float64 for one sequence, whose queries [Q, H, D] are these."""
        found = []
        for heads, length in self.cache.pieces(index):
            own = slice(heads.start * self.group, heads.stop * self.group)
            rows, (keys, values) = query[:, own], self.cache.read(index, heads, length)
            visible = visible_tokens(len(query), length, self.window, query.device)
            sizes = self.cache.sizes(index, heads, length)
            sinks = None if self.sinks is None else self.sinks[own]
            attended = attend(rows, keys, values, visible, self.scale, sinks, sizes)
            if self.mass_queries is not None:
                last = slice(max(0, len(query) - self.mass_queries), None)
                observed = rows[last], keys, attended.lse[last], visible[last]
                attended = replace(attended, mass=mass_of(*observed, self.scale, self.num_slots, sizes and sizes[0]))
            found.append(attended)
        return beside(found)

    def check(self, op: str, axes: str) -> None:
        PagedOperands.check(self, op, axes)
        check_sinks(op, self.query, self.sinks)
