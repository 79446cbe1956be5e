"""A line that says how long a run will take, once its first part shows it."""

import time
from collections.abc import Callable

from qbench.cli.duration import readable_duration
from qbench.cli.output import print_warning
from qbench.progress import Progress

LONG_SECONDS = 60


def tell_long_run(update: Progress, work: str, advice: str, clock: Callable[[], float] = time.monotonic) -> Progress:
    """`update` that also prints, once, a count and the time left, if the first part of `work` shows a long run.

    work     label of the updates that count
    advice   how to make the run shorter
    """
    begun: list[float] = []
    told: list[bool] = []

    def updated(done: int, total: int, label: str) -> None:
        update(done, total, label)
        if label != work or told:
            return
        if not done:
            begun.append(clock())
        elif begun:
            told.append(True)
            left = (clock() - begun[-1]) / done * (total - done)
            if left > LONG_SECONDS:
                print_warning(f"{total:,} {work} take about {readable_duration(left)} more; {advice}")

    return updated
