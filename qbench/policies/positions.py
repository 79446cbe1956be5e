"""Policies that follow from positions alone: the whole text, a window, and a window with attention sinks."""

import re
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor

from qbench.policies.policy import CachePolicy, LayerState, Span, top_slots
from qbench.policies.registry import policy
from qbench.words.written import whole_number
from quant.errors import InputError

# Tokens that pile up before a window is cut in decode: moving a window of 1024 tokens for each new one would cost more
# than attending to it.
SPARE = 64

_WINDOW, _SINKS = re.compile(r"[1-9]\d*"), re.compile(r"([1-9]\d*)\+([1-9]\d*)")


@policy("full")
@dataclass(frozen=True)
class Full(CachePolicy):
    """Every token stays."""

    position_only: ClassVar[bool] = True

    @classmethod
    def parse_options(cls, options: str) -> Self:
        if options:
            raise InputError("full has no options")
        return cls()

    def slots(self, context: int, layer: int, num_layers: int) -> int:
        return context

    def keep(self, state: LayerState) -> Tensor | None:
        return None


@policy("window")
@dataclass(frozen=True)
class Window(CachePolicy):
    """A query sees the last tokens, itself included.

    tokens   number of them; None: in each layer as the model says
    source   Beltagy et al. 2020, arXiv:2004.05150, section 3.1
    """

    tokens: int | None = None
    notation: ClassVar[str | None] = "window, window:N"
    position_only: ClassVar[bool] = True

    @classmethod
    def parse_options(cls, options: str) -> Self:
        if options and not _WINDOW.fullmatch(options):
            raise InputError("expected window, or window:N with a number of tokens from 1")
        return cls(whole_number(options, 1) if options else None)

    @property
    def span(self) -> Span:
        return Span(self.tokens)

    def slots(self, context: int, layer: int, num_layers: int) -> int:
        return context if self.tokens is None else min(context, self.tokens + SPARE)

    def slots_after(self, num_prompt: int, steps: int, layer: int, num_layers: int) -> tuple[int, int]:
        if self.tokens is None or num_prompt + steps <= self.tokens:
            return num_prompt, steps
        kept = min(num_prompt, self.tokens)
        if kept + steps <= self.tokens + SPARE:
            return kept, steps
        return self.tokens, (kept + steps - self.tokens - SPARE - 1) % (SPARE + 1)

    def keep(self, state: LayerState) -> Tensor | None:
        if self.tokens is None or state.num_held <= self.tokens + (0 if state.is_prefill else SPARE):
            return None
        return top_slots(state.positions.double(), self.tokens)


@policy("sinks")
@dataclass(frozen=True)
class Sinks(CachePolicy):
    """A query sees the first tokens and the last ones, at the positions that they have in the cache.

    source   Xiao et al. 2023, arXiv:2309.17453, section 3.2
    """

    sinks: int
    window: int
    notation: ClassVar[str | None] = "sinks:S+N"
    position_only: ClassVar[bool] = True

    @classmethod
    def parse_options(cls, options: str) -> Self:
        found = _SINKS.fullmatch(options)
        if found is None:
            raise InputError("expected sinks:S+N with numbers of tokens from 1")
        return cls(whole_number(found[1]), whole_number(found[2]))

    @property
    def span(self) -> Span:
        return Span(self.window, self.sinks)

    def slots(self, context: int, layer: int, num_layers: int) -> int:
        return min(context, self.sinks + self.window)

    def keep(self, state: LayerState) -> Tensor | None:
        if state.num_held <= self.sinks + self.window:
            return None
        rank = state.positions.double().masked_fill(state.positions < self.sinks, float("inf"))
        return top_slots(rank, self.sinks + self.window)
