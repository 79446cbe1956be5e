"""From which memory limit offload is needed, and the share of the speed that it leaves."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import ceil

from qbench.breakeven.question import Question, Settings, question
from qbench.breakeven.turns import ratios_to_first
from qbench.breakeven.verdict import OFF, Answer, Point
from qbench.progress import Progress
from qbench.run.work import SpeedWork
from qbench.runtime.offload.budget import MEBI
from qbench.sources import open_source
from qbench.speed.timed_process import TimedProcess, speed_process
from quant.errors import InputError
from quant.models import ModelConfig

SHARES = (0.9, 0.75, 0.6, 0.45)  # of the peak without a limit
STEPS, DEPTH = 4, 16  # decode steps per round, after so many tokens: the weights decide, not the cache
NEEDED = "needed"


@question("offload")
class OffloadQuestion(Question):
    """Each limit takes turns with the model in memory, in a process of its own that the limit covers."""

    asks = "below which memory limit is offload needed, and how much of the speed is left?"
    axis = "MiB"

    def answers(self, spec: str, settings: Settings, progress: Progress | None = None) -> Iterator[Answer]:
        check(settings)
        depth = min(DEPTH, ModelConfig.of(open_source(spec)).max_positions - STEPS)
        case = SpeedWork(pp=0, tg=STEPS, depth=depth, repetitions=settings.rounds)
        with ExitStack() as stack:
            in_memory = stack.enter_context(speed_process(spec, settings.options))
            peak = peak_mebibytes(in_memory, case)
            found = {}
            for number, size in enumerate(limits := limits_of(settings, peak)):
                if progress:
                    progress(number, len(limits), "limits")
                point = point_at(spec, in_memory, size, case, settings)
                if point is None:
                    break  # a lower limit is too small, too
                found[size] = point
        points = [replace(point, says=NEEDED if size < peak else OFF) for size, point in sorted(found.items())]
        yield Answer("offload", tuple(points), conclusion=conclusion(peak, points), needed_below=peak)


def check(settings: Settings) -> None:
    """raises InputError for settings that offload cannot take"""
    replace(settings.options, memory_bytes=MEBI)
    if settings.clock != "wall":
        raise InputError("CPU time leaves out the waiting for a disk; measure offload without --cpu-time")
    if settings.alternatives or settings.num_layers is not None:
        raise InputError("offload has one alternative and needs all layers; leave out --only and --layers")


def peak_mebibytes(side: TimedProcess, case: SpeedWork) -> int:
    """Peak memory of the process after a step of the case."""
    side.hold([[1] * case.depth], case.longest)
    side.seconds([[1] * STEPS], 1)
    return ceil(side.call("memory", {})["peak_rss_bytes"] / MEBI)


def limits_of(settings: Settings, peak: int) -> Sequence[int]:
    """MiB, the largest first."""
    return sorted(settings.sizes or {int(peak * share) for share in SHARES}, reverse=True)


def point_at(spec: str, in_memory: TimedProcess, size: int, case: SpeedWork, settings: Settings) -> Point | None:
    """The speed within the limit over that in memory; None for a usual limit that is too small.

    raises   InputError for a limit of the user's own that is too small
    """
    limited = replace(settings.options, memory_bytes=size * MEBI)
    try:
        with speed_process(spec, limited) as side:
            (found,) = ratios_to_first([in_memory, side], case, "tg")
            peak = side.call("memory", {})["peak_rss_bytes"]
    except InputError:
        if settings.sizes:
            raise
        return None
    return Point(size, f"--memory {size}MiB", found.value, found.low, found.high, {"peak_MiB": peak / MEBI})


def conclusion(peak: int, points: Sequence[Point]) -> str:
    needed = [point for point in points if point.size < peak and point.ratio is not None]
    costs = ", ".join(f"{point.ratio:.0%} of the speed at {point.size} MiB" for point in reversed(needed))
    return f"offload: off from {peak} MiB on, the peak without it; needed below" + (f", with {costs}" if costs else "")
