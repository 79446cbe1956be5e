"""What every statistic comes out as."""

import math
from dataclasses import dataclass

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its standard error and 95 % interval; None where the data cannot tell, as one block cannot.

    p_value   of "no difference" (ratio 1, difference 0), two-sided; None for a value that is no comparison
    """

    value: float
    error: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None

    @property
    def interval(self) -> list[float] | None:
        return None if self.low is None else [self.low, self.high]

    def exp(self) -> "Estimate":
        """The same of exp(value): a ratio from the difference of logarithms, a perplexity from a mean."""
        value = math.exp(self.value)
        if self.low is None:
            return Estimate(value)
        return Estimate(value, value * self.error, math.exp(self.low), math.exp(self.high), self.p_value)
