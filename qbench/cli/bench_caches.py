"""`qbench bench --cache none,dynamic`: steps and prompts with several caches, by tokens held."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from qbench.cli.output import aligned, print_json, readable_bytes
from qbench.cli.progress import progress_bar
from qbench.run_options import RunOptions
from qbench.speed.speed_case import SpeedCase


def print_caches(
    model: str,
    cases: Sequence[SpeedCase],
    options: RunOptions,
    threads: Sequence[int | None],
    pairs: Sequence[tuple[str, str]],
    as_json: bool,
) -> None:
    """One object per cache and case, or one table of all."""
    from qbench.speed.bench import bench_cases

    rows = []
    with progress_bar(f"bench {model}") as update:
        for layout, policy in pairs:
            cached = replace(options, cache=layout, policy=policy)
            for row in bench_cases(model, cases, cached, threads=threads, progress=update):
                rows.append(row.to_json() | {"cache": layout, "policy": policy})
                if as_json:
                    print_json(rows[-1])
    if not as_json:
        click.echo("\n".join(caches_table(rows)))


def caches_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line per cache, depth, batch and number of threads: milliseconds of a step of all sequences, and so on."""
    heads = ("cache", "policy", "held", "batch", "threads", "ms a step", "prompt ms", "cache takes")
    cells = [
        (
            row["cache"],
            row["policy"],
            str(row["depth"]),
            str(row["batch"]),
            str(row["threads"]),
            _number(row["tpot_ms"]),
            _number(row["ttft_ms"]),
            readable_bytes(row["kv_bytes_held"]),
        )
        for row in rows
    ]
    return aligned(heads, cells)


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"
