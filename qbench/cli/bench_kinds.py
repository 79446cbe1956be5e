"""`qbench bench --cache none,dynamic`: what a step and a prompt take with caches of several kinds, by tokens held."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from qbench.cache_kinds import parse_kind
from qbench.cli.output import aligned, print_json, readable_bytes
from qbench.cli.progress import progress_bar
from qbench.run_options import RunOptions
from qbench.speed.speed_case import SpeedCase
from quant.errors import InputError


class KindList(click.ParamType):
    """ "none,window:256" -> the kinds, each once, as qbench.cache_kinds has them."""

    name = "kind,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        kinds = tuple(dict.fromkeys(value.split(",")))
        try:
            for kind in kinds:
                parse_kind(kind)
        except InputError as error:
            self.fail(str(error), param, ctx)
        return kinds


def print_kinds(
    model: str,
    cases: Sequence[SpeedCase],
    options: RunOptions,
    threads: Sequence[int | None],
    kinds: Sequence[str],
    as_json: bool,
) -> None:
    """One object for each kind and case, or one table of all."""
    from qbench.speed.bench import bench_cases

    rows = []
    with progress_bar(f"bench {model}") as update:
        for kind in kinds:
            for row in bench_cases(model, cases, replace(options, cache=kind), threads=threads, progress=update):
                rows.append(row.to_json() | {"cache_kind": kind})
                if as_json:
                    print_json(rows[-1])
    if not as_json:
        click.echo("\n".join(kinds_table(rows)))


def kinds_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each kind, depth, batch and number of threads: milliseconds of a step of all sequences, and so on."""
    heads = ("cache", "held", "batch", "threads", "ms a step", "prompt ms", "cache takes")
    cells = [
        (
            row["cache_kind"],
            str(row["depth"]),
            str(row["batch"]),
            str(row["threads"]),
            _number(row["tpot_ms"]),
            _number(row["ttft_ms"]),
            readable_bytes(row["cache_bytes"]),
        )
        for row in rows
    ]
    return aligned(heads, cells)


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"
