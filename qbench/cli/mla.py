"""`qbench mla`: cost of each way to compute multi-head latent attention costs, and which the runtime takes."""

from itertools import groupby
from operator import itemgetter

import click

from qbench.cli.help import Command
from qbench.cli.keep_path import KeepPath
from qbench.cli.output import (
    aligned,
    cpu_time_option,
    json_option,
    print_json,
    print_warning,
    readable_bytes,
)
from qbench.cli.progress import progress_bar
from qbench.cli.run_options import axis_option
from qbench.cli.types import IntList, count_option
from qbench.measure.records.kept_row import keep_row

HEADINGS = ("mode", "cache", "operations", "time", "memory")


@click.command(
    "mla",
    cls=Command,
    sections={"Case": ("context", "batch", "tokens", "mode", "rounds", "fit")},
    examples=("qbench mla --context 1024", "qbench mla --context 1024 --cpu-time --threads 1"),
)
@click.argument("model", default="rand:deepseek-v2-lite")
@click.option(
    "--context",
    "--ctx",
    "contexts",
    type=IntList(0),
    default=(),
    help="Number of tokens in the cache  [default: 512,4096, or fewer]",
)
@click.option(
    "--batch", "batches", type=IntList(1), default="1,4", show_default=True, help="Number of sequences at once."
)
@click.option(
    "--tokens", type=IntList(1), default=(), help="Number of new tokens per sequence  [default: 1,512, or fewer]"
)
@click.option("--mode", "modes", multiple=True, help="Time only this mode; may be given several times.")
@count_option("--rounds", default=5, help="Number of turns of each mode.")
@cpu_time_option
@click.option("--device", default="cpu", show_default=True, help="cpu: as the runtime runs it; cuda: torch, float32.")
@click.option("--keep", type=KeepPath(), help="Append the rows as records to this file or folder.")
@click.option(
    "--fit", type=click.Path(), help="Measure nothing, and fit the cost of each term to the rows of this file."
)
@axis_option("kv_format")
@axis_option("threads")
@json_option
def command(model, contexts, batches, tokens, modes, rounds, cpu_time, device, keep, fit, kv, threads, as_json) -> None:
    """Bytes, operations, time and memory of latent attention in one layer, for every mode.

    Modes take turns. A star marks the mode that the runtime takes.
    """
    if fit is not None:
        return print_costs(fit, as_json)
    from qbench.mla.measure import Grid
    from qbench.mla.run import CASE_KEYS, run_mla

    grid = Grid(contexts, batches, tokens, rounds, modes, "cpu" if cpu_time else "wall")
    with progress_bar(f"mla {model}") as update:
        found = run_mla(model, grid, device=device, kv=kv, threads=threads, progress=update)
    rows, crossovers = ([row.to_json() for row in each] for each in (found.rows, found.crossovers))
    if keep is not None:
        for row in rows:
            keep_row(keep, row, {"kind": "mla"}, CASE_KEYS)
    print_warning(found.warning)
    for row in (*rows, *crossovers) if as_json else ():
        print_json(row)
    if not as_json:
        print_tables(rows, crossovers)


def print_tables(rows: list[dict], crossovers: list[dict]) -> None:
    """A block for each case, then where the modes cross, if the rows show it."""
    for (tokens, context, batch), of_case in groupby(rows, itemgetter("tokens", "context", "batch")):
        click.echo(f"\n{tokens} new, {context} held, batch {batch}, one layer")
        click.echo("\n".join(aligned(HEADINGS, map(cells, of_case))))
    for found in crossovers:
        if found["tokens"] is not None:
            picked = "never" if found["picked"] is None else f"from {found['picked']} on"
            where = f"{found['context']} held, batch {found['batch']}"
            measured = f"compressed is faster from {found['tokens']:.0f} new tokens on"
            click.echo(f"\n{where}: {measured}; the runtime takes it {picked}")


def print_costs(path: str, as_json: bool) -> None:
    from qbench.mla.fit import fit_kept

    costs = fit_kept(path)
    if as_json:
        print_json(costs)
    else:
        click.echo("\n".join(aligned(("term", "ns"), [[name, f"{cost:.4g}"] for name, cost in costs.items()])))


def cells(row: dict) -> list[str]:
    name = row["mode"] + (" *" if row["picked"] else "")
    flop = f"{row['flop_per_token'] / 1e6:.1f} M/token"
    cache = f"{row['kv_bytes_per_token']:.0f} B"
    return [name, cache, flop, f"{row['ms']:.3f} ms", readable_bytes(row["peak_bytes"])]
