"""The result of every statistic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from quant.json_data import JsonData

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
Z = NormalDist().inv_cdf(1 - ALPHA / 2)  # standard errors to either end of a normal interval
# Simulated on divergences of real windows, intervals of fewer miss the truth too often (docs/statistics.md).
ENOUGH_BLOCKS = 8


def says_enough(interval: Sequence[float], num_blocks: int, bound: float | None = None) -> bool:
    """Whether the interval of a mean over blocks may be printed: 95 % of such intervals hold the truth.

    bound   the least possible mean. An interval that reaches from there says nothing: its blocks are too uneven.
    """
    low, high = interval
    return num_blocks >= ENOUGH_BLOCKS and not (bound is not None and low <= bound < high)


@dataclass(frozen=True, slots=True)
class Estimate(JsonData):
    """A value with its standard error and 95 % interval; None if the data cannot give them, for example one block.

    p_value   of "no difference" (ratio 1, difference 0), two-sided; None for a value that is no comparison
    """

    value: float
    error: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None

    @property
    def interval(self) -> list[float] | None:
        return None if self.low is None or self.high is None else [self.low, self.high]

    def printed_interval(self, num_blocks: int, bound: float | None = None) -> list[float] | None:
        """The interval if it `says_enough`."""
        interval = self.interval
        return interval if interval is not None and says_enough(interval, num_blocks, bound) else None

    def at_least(self, bound: float) -> "Estimate":
        """The interval without the part below `bound`, for figures that cannot be below it, such as a mean of
        divergences below 0.

        It holds the truth as often as before, since the truth is not in the part that is cut off.
        source   Mandelkern 2002, Statistical Science 17 (intervals for bounded parameters)
        """
        if self.low is None or self.high is None:
            return self
        return replace(self, low=max(self.low, bound), high=max(self.high, bound))

    def exp(self) -> "Estimate":
        """The same of exp(value): a ratio from the difference of logarithms, a perplexity from a mean."""
        value = math.exp(self.value)
        if self.error is None or self.low is None or self.high is None:
            return Estimate(value)
        return Estimate(value, value * self.error, math.exp(self.low), math.exp(self.high), self.p_value)
