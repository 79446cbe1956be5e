"""The progress bar of commands: of several ranks the first shows it."""

from collections.abc import Iterator
from contextlib import contextmanager

from qbench.progress import Update
from qbench.progress import progress_bar as shown_progress
from qbench.run.rank_layout import find_world

__all__ = ["Update", "progress_bar"]


@contextmanager
def progress_bar(work: str) -> Iterator[Update]:
    """As `qbench.progress.progress_bar`; nothing on the other ranks."""
    world = find_world()
    if world is not None and not world.is_first:
        yield lambda done, total, label=work: None
        return
    with shown_progress(work) as update:
        yield update
