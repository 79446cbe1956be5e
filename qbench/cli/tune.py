"""`qbench tune`: measure the switch points of this machine, and keep them for later runs."""

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from qbench.cli.help import Command
from qbench.cli.output import aligned, json_option, print_json, print_pairs, print_warning
from qbench.cli.progress import progress_bar
from qbench.cli.types import FiniteRange
from qbench.measure.host.conditions import busy_warning

if TYPE_CHECKING:
    from qbench.tune.linears import LinearGain
    from qbench.tune.tune import TuneResult

LIMIT_S = 120


@click.command("tune", cls=Command, examples=("qbench tune", "qbench tune --show"))
@click.option(
    "--budget",
    type=FiniteRange(min=1),
    default=LIMIT_S,
    show_default=True,
    help="Time limit in seconds; formats that are left keep their shipped points.",
)
@click.option("--show", is_flag=True, help="Print the table that holds on this machine, and measure nothing.")
@click.option("--forget", is_flag=True, help="Remove the table of this machine; the shipped points hold again.")
@json_option
def command(budget: float, show: bool, forget: bool, as_json: bool) -> None:
    """Measure from how many tokens on each way to multiply is the faster one here, and keep that for later runs.

    The table has the switch points between products of single tokens, of tiles, of rounded K-quants and of bfloat16 on
    AMX, between the plans of latent attention, and the number of threads. It is kept per machine in the user's cache
    folder, and records name it. QBENCH_TUNING=off leaves it out.
    """
    from qbench.measure.tuning import check_writable, keep_tuning, tuned, tuning_file

    if show and forget:
        raise click.UsageError("--show and --forget are two commands; give one")
    file = tuning_file()
    if show:
        table = tuned()
        if as_json:
            return print_json(None if table is None else table.to_json())
        return click.echo("the shipped switch points" if table is None else json.dumps(table.to_json(), indent=1))
    if forget:
        with suppress(FileNotFoundError):
            file.unlink()
        return print_json({"removed": str(file)}) if as_json else click.echo(f"removed {file}")
    check_writable(file)
    from qbench.tune.tune import tune

    with progress_bar("tune") as update:
        found = tune(budget, update)
    keep_tuning(found.table, file)
    print_warning(busy_warning(found.busy_before))
    if as_json:
        return print_json(found.to_json())
    print_pairs(readable(found, str(file)))
    click.echo()
    for line in table_of(found.linears):
        click.echo(line)


def readable(found: "TuneResult", file: str) -> dict[str, str]:
    threads, latent = found.threads, found.latent
    return {
        "table": f"{found.name}, in {file}",
        "threads": f"{threads.best}, {threads.gain:.3f} times as fast as all cores",
        "latent": "as shipped"
        if latent is None or latent.costs is None
        else f"other costs: {latent.gain:.3f} times as fast at {latent.points} sizes",
        "time": f"{found.seconds:.0f} s" + (f"; left as shipped: {', '.join(found.skipped)}" if found.skipped else ""),
    }


def table_of(linears: "list[LinearGain]") -> list[str]:
    """One row per op: its switch points before and after, and the gain where the path changes."""
    has_tiles = any(one.shipped.least_bf16 is not None for one in linears)
    rows = [
        (
            one.op,
            points(one.shipped.most_direct, one.measured.most_direct),
            points(one.shipped.least_rerounded, one.measured.least_rerounded),
            *([points(one.shipped.least_bf16, one.measured.least_bf16)] if has_tiles else []),
            "" if one.gain is None else f"{one.gain:.3f} at {len(one.tokens)} sizes",
        )
        for one in linears
    ]
    tiles = ["bf16 from"] if has_tiles else []
    return aligned(("op", "direct up to", "int8x256 from", *tiles, "times as fast"), rows)


def points(before: int | None, after: int | None) -> str:
    """ "24", "24 -> 32", or "-" for a path that the format or the processor has not"""
    from qbench.measure.tuning import NEVER

    names = ["-" if tokens is None or tokens >= NEVER else str(tokens) for tokens in (before, after)]
    return names[0] if before == after else " -> ".join(names)
