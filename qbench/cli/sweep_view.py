"""A sweep while it runs: a live table on a terminal, a line per case on a pipe; all of it on stderr."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from qbench.cli.output import readable_duration
from qbench.measure.metrics import Metrics
from qbench.measure.records.record import Record
from qbench.run.axes import AXIS

OnEvent = Callable[[Any], None]
SHOWN = 8  # results: a small window has room for so many next to the prompt
BAR_WIDTH = 32
# metric -> heading and how it is written
FIGURES = (
    ("perplexity", "perplexity", "{:.3f}"),
    ("kld", "mean KLD", "{:.2e}"),
    ("pp_tok_s", "pp tok/s", "{:,.0f}"),
    ("tg_tok_s", "tg tok/s", "{:,.0f}"),
)


@contextmanager
def sweep_view(name: str, time_left: Callable[[Any], Any]) -> Iterator[OnEvent]:
    """Yields the listener of a sweep's events.

    time_left   of the cases that are to be measured makes a TimeLeft
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines()
        return
    table = LiveTable(name, time_left, console)
    with Live(get_renderable=table.render, console=console, refresh_per_second=4, transient=True):
        yield table


class Warnings:
    """The warnings of a sweep, each once: cases that share a file have the same ones."""

    def __init__(self) -> None:
        self.shown: set[str] = set()

    def new(self, event: Any) -> list[str]:
        lines = [f"warning: {event.point.model} {event.point.recipe}: {warning}" for warning in event.warnings]
        fresh = [line for line in lines if line not in self.shown]
        self.shown |= set(fresh)
        return fresh


class Lines:
    """A line as each case ends."""

    def __init__(self) -> None:
        self.varying: tuple[str, ...] = ()
        self.warnings = Warnings()

    def __call__(self, event: Any) -> None:
        if event.kind == "begin":
            self.varying = event.varying
            held = event.total - len(event.cases)
            if held:
                click.echo(f"{held} of {event.total} already measured", err=True)
        elif event.kind in ("done", "failed"):
            for line in self.warnings.new(event):
                click.echo(line, err=True)
            ending = result_text(event.record) if event.kind == "done" else f"failed: {event.record.error}"
            click.echo(f"{event.index + 1}/{event.total} {case_text(event, self.varying)}: {ending}", err=True)


class LiveTable:
    """Progress, remaining time, the cases that run, and the last results."""

    def __init__(self, name: str, time_left: Callable[[Any], Any], console: Console) -> None:
        self.name, self.make_time_left, self.console = name, time_left, console
        self.start = time.monotonic()
        self.counts = {"done": 0, "failed": 0, "skipped": 0}
        self.total = 0
        self.varying: tuple[str, ...] = ()
        self.running: dict[int, tuple[float, Any]] = {}  # case -> when it began, its last event
        self.results: deque[tuple[str, Metrics, float]] = deque(maxlen=SHOWN)
        self.time_left: Any = None
        self.warnings = Warnings()

    def __call__(self, event: Any) -> None:
        self.total = event.total
        self.counts |= {event.kind: self.counts[event.kind] + 1} if event.kind in self.counts else {}
        if event.kind == "begin":
            self.varying = event.varying
            self.time_left = self.make_time_left(event.cases) if event.cases else None
        elif event.kind in ("start", "progress"):
            begun, _ = self.running.get(event.index, (time.monotonic(), None))
            self.running[event.index] = begun, event
        elif event.kind in ("done", "failed"):
            self.end(event)

    def end(self, event: Any) -> None:
        begun, _ = self.running.pop(event.index)
        seconds = time.monotonic() - begun
        self.time_left.end(event.record, seconds)
        for line in self.warnings.new(event):
            self.console.print(line, highlight=False, markup=False)
        name = case_text(event, self.varying)
        if event.kind == "failed":
            self.console.print(f"{name}: failed: {event.record.error}", highlight=False, markup=False)
        else:
            self.results.append((name, event.record.metrics, seconds))

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [self.head()]
        parts += [self.case_line(begun, event) for begun, event in list(self.running.values())]
        if self.results:
            parts.append(self.result_table())
        return Group(*parts)

    def head(self) -> RenderableType:
        over = sum(self.counts.values())
        texts = [f"{over}/{self.total} cases", f"{readable_duration(time.monotonic() - self.start)} so far"]
        longest = max((time.monotonic() - begun for begun, _ in self.running.values()), default=0.0)
        left = self.time_left and self.time_left.seconds(longest * len(self.running))
        texts += [f"about {readable_duration(left / max(1, len(self.running)))} left"] if left is not None else []
        texts += [f"{self.counts['failed']} failed"] if self.counts["failed"] else []
        return _line(Text(self.name, style="bold"), over, self.total, ", ".join(texts))

    def case_line(self, begun: float, event: Any) -> RenderableType:
        done, total, what = event.progress or (0, 0, "")
        seconds = readable_duration(time.monotonic() - begun)
        about = ", ".join(filter(None, (event.stage, f"{what} {done}/{total}" if total else what, seconds)))
        return _line(Text(case_text(event, self.varying)), done, total, about)

    def result_table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("last results", no_wrap=True)
        shown = [figure for figure in FIGURES if any(_value(metrics, figure[0]) for _, metrics, _ in self.results)]
        for _, heading, _ in shown:
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("took", justify="right", no_wrap=True)
        for name, metrics, seconds in self.results:
            values = [_value(metrics, key) for key, _, _ in shown]
            cells = [
                "" if value is None else form.format(value) for value, (_, _, form) in zip(values, shown, strict=True)
            ]
            table.add_row(Text(name), *cells, readable_duration(seconds))
        return table


def _line(name: Text, done: int, total: int, about: str) -> Table:
    line = Table.grid(padding=(0, 1))
    line.add_row(name, ProgressBar(total=total or None, completed=done, width=BAR_WIDTH, pulse=not total), Text(about))
    return line


def case_text(event: Any, varying: tuple[str, ...]) -> str:
    """Model and recipe, of the other axes those that have more than one value here, and whether it is a second time."""
    words = [event.point.model, event.point.recipe]
    words += [f"{name}={AXIS[name].text(event.point)}" for name in varying if name not in ("model", "recipe")]
    return " ".join([*words, *([event.of_kind] if event.of_kind else [])])


def result_text(record: Record) -> str:
    """The figures of a row in one line."""
    found = [(heading, form, _value(record.figures, key)) for key, heading, form in FIGURES]
    texts = [f"{heading} {form.format(value)}" for heading, form, value in found if value is not None]
    return ", ".join(texts) or "measured"


def _value(metrics: Metrics, key: str) -> float | None:
    return metrics.quality and metrics.quality.mean_kld if key == "kld" else metrics.figure(key)
