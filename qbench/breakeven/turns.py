"""Sides of one loaded model that take turns, and the ratios of their speeds to the first's."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from qbench.measure.host.clocks import CLOCKS
from qbench.speed.interleaved import interleave
from qbench.speed.speed_case import SpeedCase
from qbench.statistics import speed_ratio
from qbench.statistics.estimate import Estimate


class Turn:
    """Prefill of one prompt by one pattern, in this process; a `Side` of `interleave`.

    tokens  [1, T] int64, which every round passes, instead of the random ones of the case
    """

    def __init__(self, model: Any, pattern: str, tokens: torch.Tensor, clock: str) -> None:
        self.model, self.tokens, self.clock = model, tokens, CLOCKS[clock]
        self.spec = replace(model.cache_spec, prefill=pattern)
        self.pid, self.vocab_size = os.getpid(), model.config.vocab_size
        self.cache: Any = None

    def hold(self, tokens: list[list[int]], capacity: int) -> None:
        self.cache = self.model.new_cache(1, self.tokens.shape[1], spec=self.spec)

    def seconds(self, tokens: list[list[int]], step: int) -> float:
        self.cache.truncate(0)
        start = self.clock()
        self.model(self.tokens, self.cache, last_only=True)
        return self.clock() - start


def ratios_to_first(sides: Sequence[Turn], case: SpeedCase) -> list[Estimate]:
    """Speed of each other side over the first's, from rounds in which all take turns."""
    rounds = interleave(sides, case)
    first, *others = ([1 / seconds for seconds in rounds.steady("pp", side)] for side in range(len(sides)))
    return [speed_ratio(first, other) for other in others]
