"""Progress on stderr or in a notebook: a bar if somebody can see it, otherwise a line from time to time."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Progress = Callable[[int, int, str], None]  # (done, total, work in progress)
Update = Progress  # as a bar yields it

# Seconds until the first line of work that nobody watches, and the longest pause between two: 5, 15, 35, 75, 135, ...
FIRST_LINE_S, LONGEST_PAUSE_S = 5.0, 60.0


@contextmanager
def progress_bar(work: str) -> Iterator[Update]:
    """Yields update(done, total, work). The bar disappears when the block ends, so that only results remain.

    If stderr is no terminal, work of more than FIRST_LINE_S seconds prints lines with its last update.
    """
    # rich is slow to import, and most calls of a command only print its help.
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        with _lines(work) as in_lines:
            yield in_lines
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),  # empty until the total is known
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(work, total=None, count="")

        def update(done: int, total: int, label: str = work) -> None:
            bar.update(task, completed=done, total=total, description=label, count=f"{done:>{len(str(total))}}/{total}")

        yield update


@contextmanager
def _lines(work: str) -> Iterator[Update]:
    """The same for a pipe or a file."""
    start, ended = time.monotonic(), threading.Event()
    last = [""]

    def update(done: int, total: int, label: str = work) -> None:
        count = f" {done}/{total}" if total else ""
        last[0] = f": {label}{count}" if label != work else count

    def print_lines() -> None:
        pause = FIRST_LINE_S
        while not ended.wait(pause):
            with suppress(OSError, ValueError):  # stderr is closed, and the work goes on
                print(f"{work}{last[0]}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    # A thread of its own, since some work gives no update for minutes.
    printer = threading.Thread(target=print_lines, name="progress", daemon=True)
    printer.start()
    try:
        yield update
    finally:
        ended.set()
        printer.join()
