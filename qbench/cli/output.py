"""Output of commands: one JSON object on stdout for machines, aligned pairs for people."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from qbench.cli.types import FiniteRange
from qbench.words.read import LINES, printable
from quant.json_data import JsonData

Row = TypeVar("Row", bound=JsonData)
UNITS = ("B", "kB", "MB", "GB", "TB")

json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON on stdout and nothing else: one object, or one per line for tables.",
)


def cpu_time_option(command: Callable) -> Callable:
    text = "Compare CPU time of one thread instead of wall time; for busy machines."
    return click.option("--cpu-time", is_flag=True, help=text)(command)


def budget_option(default: int) -> Callable:
    """--budget: the time limit of measurements, which has nothing to do with the budget of a cache policy."""
    text = "Time limit of the measurements in seconds; not the budget of a policy."
    return click.option("--budget", type=FiniteRange(min=0), default=default, show_default=True, help=text)


def format_option(formats: Sequence[str]) -> Callable:
    """--format of tables, as the parameter `form`."""
    text = "Format of the tables on stdout."
    return click.option("--format", "form", type=click.Choice(formats), default="md", show_default=True, help=text)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text that may come from a file: control characters become escapes, except ends of lines and tabs."""
    click.echo(printable(text, LINES), err=err, nl=nl)


def print_json(value: Any) -> None:
    """In the characters of stdout: an escape for each that a locale other than UTF-8 may lack."""
    is_utf8 = "utf" in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    echo(json.dumps(value, allow_nan=False, ensure_ascii=not is_utf8))


def print_warning(text: str | None) -> None:
    """Print on stderr; nothing for None."""
    if text is not None:
        echo(text, err=True)


def print_pairs(pairs: Mapping[str, Any]) -> None:
    """Left-aligned `name  value` lines; None is shown as n/a, so that nothing missing looks like zero."""
    width = max((len(name) for name in pairs), default=0)
    for name, value in pairs.items():
        echo(f"{name:<{width}}  {'n/a' if value is None else value}")


def print_result(row: Row, readable: Callable[[Row], Mapping[str, Any]], as_json: bool, number: int) -> None:
    """Print a line of JSON, or a block of pairs with an empty line before each block but the first."""
    if as_json:
        print_json(row.to_json())
        return
    if number:
        click.echo()
    print_pairs(readable(row))


def aligned(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table's lines, the headings' first; the first column to the left, all others to the right."""
    cells = [[printable(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in cells
    ]


def readable_bytes(num_bytes: float) -> str:
    """1_288_490_188 -> "1.29 GB" (powers of ten, as disks and bandwidths are sold)."""
    step = 0
    while abs(num_bytes) >= 1000 and step < len(UNITS) - 1:
        num_bytes, step = num_bytes / 1000, step + 1
    return f"{num_bytes:.0f} B" if step == 0 else f"{num_bytes:.2f} {UNITS[step]}"


def readable_duration(seconds: float) -> str:
    """4.2 -> "4 s", 125 -> "2 min 5 s", 3700 -> "1 h 2 min" """
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes < 1:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
