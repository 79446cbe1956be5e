"""From which size on an alternative pays: the verdict over measured ratios."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from quant.json_data import JsonData

ON, OFF = "on", "off"


@dataclass(frozen=True, slots=True)
class Point(JsonData):
    """One size at which an alternative was measured against the default, in turns.

    size      of the axis: tokens of a prompt, tokens held, sequences
    choice    the alternative with all its options, as a user would name it; None: no setting reaches the goal
    ratio     speed of the alternative over that of the default
    low, high of the ratio, 95 %; None: the samples are too few
    figures   other measurements there, by name
    says      the verdict, if the interval does not decide it
    """

    size: int
    choice: str | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    figures: Mapping[str, float] | None = None
    says: str | None = None

    @property
    def pays(self) -> bool:
        """Whether the whole interval is above 1."""
        return self.low is not None and self.low > 1

    @property
    def verdict(self) -> str:
        return self.says or (ON if self.pays else OFF)


@dataclass(frozen=True, slots=True)
class Answer(JsonData):
    """One alternative over all sizes.

    alternative  its name
    pays_from    the smallest measured size from which on every measured size pays; None: the largest does not
    below        the largest measured size that does not pay, which the crossover is above; None: all pay
    conclusion   in words, if the sizes that pay do not say it
    needed_below the size below which there is no choice, as with offload; None: there is one at every size
    """

    json_omits: ClassVar[tuple[str, ...]] = ("needed_below",)

    alternative: str
    points: tuple[Point, ...]
    pays_from: int | None = None
    below: int | None = None
    conclusion: str | None = None
    needed_below: int | None = None

    @classmethod
    def of(cls, alternative: str, points: Sequence[Point]) -> "Answer":
        ordered = tuple(sorted(points, key=lambda point: point.size))
        losing = [point.size for point in ordered if not point.pays]
        below = max(losing, default=None)
        pays_from = min((point.size for point in ordered if below is None or point.size > below), default=None)
        return cls(alternative, ordered, pays_from, below)
