"""The progress bar of commands, which the first of several ranks shows, and a line about a long run."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from qbench.cli.output import print_warning, readable_duration
from qbench.progress import Progress, Update
from qbench.progress import progress_bar as shown_progress
from qbench.run.rank_layout import find_world

__all__ = ["Update", "progress_bar", "tell_long_run"]

LONG_SECONDS = 60


@contextmanager
def progress_bar(work: str) -> Iterator[Update]:
    """As `qbench.progress.progress_bar`; nothing on the other ranks."""
    world = find_world()
    if world is not None and not world.is_first:
        yield lambda done, total, label=work: None
        return
    with shown_progress(work) as update:
        yield update


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
