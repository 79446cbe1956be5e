"""Progress on stderr or in a notebook: a bar if somebody can see it, otherwise nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Update = Callable[[int, int, str], None]  # (done, total, work in progress)


@contextmanager
def progress_bar(work: str) -> Iterator[Update]:
    """Yields update(done, total, work). The bar disappears when the block ends, so that only results remain."""
    # rich is slow to import, and most calls of a command only print its help.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),  # empty until the total is known
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    is_seen = console.is_terminal or console.is_jupyter
    with Progress(*columns, console=console, transient=True, disable=not is_seen) as bar:
        task = bar.add_task(work, total=None, count="")

        def update(done: int, total: int, label: str = work) -> None:
            bar.update(task, completed=done, total=total, description=label, count=f"{done:>{len(str(total))}}/{total}")

        yield update
