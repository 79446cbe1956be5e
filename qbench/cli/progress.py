"""Progress on stderr: a bar on a terminal, nothing on a pipe, never a byte on stdout."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Update = Callable[[int, int, str], None]  # (done, total, what is being done)


@contextmanager
def progress_bar(what: str) -> Iterator[Update]:
    """Yields update(done, total, what); the bar goes when the block ends, so that only results remain."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)

        def update(done: int, total: int, label: str = what) -> None:
            bar.update(task, completed=done, total=total, description=label)

        yield update
