"""Sides of loaded models that take turns, and the ratios of their speeds to the first's."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from qbench.run.work import SpeedWork
from qbench.speed.interleaved import Side, interleave
from qbench.speed.speed_worker import TimedModel
from qbench.statistics.estimate import Estimate
from qbench.statistics.speed import speed_ratio


class PatternTurn(TimedModel):
    """Prefill of one prompt under one pattern.

    tokens  [1, T] int64, which every round passes, instead of the random ones of the case
    """

    def __init__(self, model: Any, pattern: str, tokens: torch.Tensor, clock: str) -> None:
        super().__init__(model, clock)
        self.tokens, self.spec = tokens, replace(model.cache_spec, prefill=pattern)

    def hold(self, tokens: list[list[int]], capacity: int) -> None:
        self.cache = self.model.new_cache(1, self.tokens.shape[1], spec=self.spec)
        self.cache.mark()

    def seconds(self, tokens: list[list[int]], step: int) -> float:
        return super().seconds(self.tokens.tolist(), self.tokens.shape[1])


def ratios_to_first(sides: Sequence[Side], case: SpeedWork, phase: str) -> list[Estimate]:
    """Speed of each other side over the first's in a phase, from rounds in which all take turns."""
    rounds = interleave(sides, case)
    first, *others = ([1 / seconds for seconds in rounds.steady(phase, side)] for side in range(len(sides)))
    return [speed_ratio(first, other) for other in others]
