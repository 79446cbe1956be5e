"""Decode steps of several contenders in turns, at growing contexts."""

from collections.abc import Callable, Iterator, Sequence

from qbench.breakeven.question import Settings
from qbench.breakeven.turns import ratios_to_first
from qbench.breakeven.verdict import Answer, Point
from qbench.progress import Progress
from qbench.run.work import SpeedWork
from qbench.speed.speed_worker import TimedModel

STEPS = 16  # decode steps per round: the context grows by little


def decode_answers(
    names: Sequence[str],
    sides: Sequence[TimedModel],
    sizes: Sequence[int],
    settings: Settings,
    figures: Callable[[TimedModel], dict[str, float]],
    progress: Progress | None = None,
) -> Iterator[Answer]:
    """An answer for each name: the speed of its side over that of the first side, which has no name.

    sizes    tokens held before the steps
    figures  of a side after the steps of a size
    """
    points: dict[str, list[Point]] = {name: [] for name in names}
    for number, size in enumerate(sizes):
        if progress:
            progress(number, len(sizes), "contexts")
        case = SpeedWork(pp=0, tg=STEPS, depth=size, repetitions=settings.rounds)
        ratios = ratios_to_first(sides, case, "tg")
        for name, side, found in zip(names, sides[1:], ratios, strict=True):
            points[name].append(Point(size, name, found.value, found.low, found.high, figures(side)))
    for name, its in points.items():
        yield Answer.of(name, its)
