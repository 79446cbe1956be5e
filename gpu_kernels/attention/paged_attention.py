"""The operands of every op over a paged cache, and the textbook's result for one sequence."""

from dataclasses import dataclass

from torch import Tensor

from gpu_kernels.attention.checks import check_shape, empty_results
from gpu_kernels.attention.paged import PagedCache, check_cache, check_sinks
from gpu_kernels.attention.textbook import Attended, attend, visible_tokens


@dataclass(frozen=True, slots=True)
class PagedOperands:
    """The inputs that every op over a paged cache has.

    query          [..., H, D] bfloat16 or float16; D one of paged.HEAD_SIZES
    cache          of B sequences and Hkv heads, H % Hkv == 0; the new tokens are in it and in its seq_lens
    softmax_scale  default D**-0.5
    window         a query sees this many tokens at most, itself among them
    sinks          [H] float: a logit for each head, which takes its share of the softmax and has no value
    """

    query: Tensor
    cache: PagedCache
    softmax_scale: float | None = None
    window: int | None = None
    sinks: Tensor | None = None

    @property
    def scale(self) -> float:
        """softmax_scale or its default."""
        return self.query.shape[-1] ** -0.5 if self.softmax_scale is None else self.softmax_scale

    def attended_ref(self, index: int, query: Tensor) -> Attended:
        """The textbook's result in float64 for one sequence, whose queries [Q, H, D] are these."""
        keys, values = self.cache.sequence(index)
        visible = visible_tokens(len(query), len(keys), self.window, query.device)
        return attend(query, keys, values, visible, self.scale, self.sinks)

    def empty(self) -> tuple[Tensor, Tensor]:
        """(out [..., H, D], lse [..., H]), to be written"""
        return empty_results(self.query, self.query.shape[-1])

    def check(self, op: str, axes: str) -> None:
        """axes  of the query: "B Q H D" """
        check_shape(op, "query", self.query, [None] * len(axes.split()), axes)
        check_cache(op, self.query, self.cache)
        check_sinks(op, self.query, self.sinks, self.window)
