"""`qbench sweep SUITE`: quantize, evaluate and bench every case of a suite, and print the table."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from qbench.cli.help import Command
from qbench.cli.output import echo, json_option, print_json
from qbench.cli.progress import progress_bar
from qbench.cli.rank_sweep import check_one_rank, divided, rank_executor
from qbench.cli.run_options import asked_processes, run_options
from qbench.cli.sweep_forecast import print_forecast
from qbench.cli.types import CaseLimit
from qbench.gate.options import suite_file
from qbench.measure.host.machine import machine
from qbench.measure.launch import MAX_LAUNCHES
from qbench.run.axes import RANKS
from qbench.run.options import RunOptions
from qbench.sweeps.forecast.time_left import TimeLeft
from qbench.sweeps.interrupt import gentle_interrupt
from qbench.sweeps.suite.rules import parse_only
from quant.errors import InputError

KEPT = Path("results")  # rows of earlier sweeps, for the time that cases take
INTERRUPTED = 130  # 128 + SIGINT, as in shells


@click.command(
    "sweep",
    cls=Command,
    sections={"Cases": ("model", "only", "shuffle", "limit", "resume", "launches", "dry_run")},
    examples=("qbench sweep quickstart --dry-run", "qbench sweep quickstart --model ref:llama-8k"),
)
@click.argument("suite", type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="Folder of the run  [default: runs/<name of the suite>]")
@click.option("--model", "models", multiple=True, metavar="MODEL", help="Model to measure instead of the suite's own.")
@click.option(
    "--only",
    multiple=True,
    metavar="AXIS=VALUE,...",
    help="Measure only these cases, for example recipe=q4_k_m|q4_0,model=ref:*",
)
@click.option(
    "--shuffle", type=int, metavar="SEED", help="Measure in a random order; the same seed gives the same order."
)
@click.option(
    "--limit",
    type=CaseLimit(),
    help="Largest number of cases to measure now, or a time such as 50min after which no case begins.",
)
@click.option("--resume/--fresh", default=True, show_default=True, help="Keep measured cases, or measure them again.")
@click.option(
    "--launches",
    type=click.IntRange(1, MAX_LAUNCHES),
    help="Number of processes that measure each speed, one launch of all cases after another  [default: 1, or the "
    "suite's]",
)
@click.option("--dry-run", is_flag=True, help="Print the cases with their time, memory and disk, and write nothing.")
@json_option
@run_options(RANKS)
@click.pass_context
def command(
    ctx,
    suite: str,
    output: str | None,
    models,
    only,
    shuffle,
    limit,
    resume,
    launches,
    dry_run,
    as_json,
    options: RunOptions,
) -> None:
    """Measure every case of SUITE, a file or the name of one under suites/, that the folder does not hold yet.

    A sweep can be stopped and started again: Ctrl-C ends it after the running case, a second Ctrl-C at once.

    With --ranks, or with a suite that names divisions, ranks divide every model among them. --ranks ray=HOST:PORT alone
    runs whole cases on the nodes of a Ray cluster.
    """
    from qbench.sweeps.suite.load_suite import load_suite
    from qbench.sweeps.sweep import Selection, run_sweep

    most, budget_s = limit or (None, None)
    selection = Selection(tuple(map(parse_only, only)), shuffle, not resume, most, budget_s, launches)
    loaded = divided(load_suite(suite_file(suite), models), options)
    folder = Path(output) if output else Path("runs") / loaded.name
    if "division" not in loaded.axes:
        check_one_rank()
    elif dry_run:
        raise InputError("--dry-run forecasts cases of one rank; leave it out for models that ranks divide")
    if dry_run:
        forecast_only(loaded, folder, selection, as_json)
        return
    left = time_left(folder / "records.jsonl")
    where = executor() if "division" not in loaded.axes else rank_executor(loaded, options, selection)
    if where is None:
        return
    from qbench.cli.sweep_view import sweep_view  # which imports rich

    with sweep_view(loaded.name, left) as view, gentle_interrupt(say_stopping) as stop:
        result = run_sweep(loaded, folder, view, selection=selection, executor=where, stop=stop)
    print_result(result, folder, as_json)
    if result.left:
        echo(f"{result.left} cases are left: the same command goes on", err=True)
    ctx.exit(INTERRUPTED if stop() else int(result.failed > 0))


def executor() -> Callable:
    """Makes the executor of a run's folder: this machine, or the cluster of --ranks ray=ADDRESS."""
    ray = asked_processes().ray
    if ray is None:
        from qbench.sweeps.executor import LocalExecutor

        return LocalExecutor
    from qbench.sweeps.ray.ray_cluster import Cluster
    from qbench.sweeps.ray.ray_executor import RayExecutor

    return partial(RayExecutor, cluster=Cluster(ray))


def forecast_only(suite, folder: Path, selection, as_json: bool) -> None:
    from qbench.sweeps.forecast.forecast import forecast_sweep

    with progress_bar(f"forecast of {suite.name}") as update:
        forecast = forecast_sweep(suite, folder, selection, KEPT, update)
    print_forecast(suite, forecast, as_json)


def say_stopping() -> None:
    echo("qbench: this case comes to its end, then the sweep stops; Ctrl-C again stops it now", err=True)


def time_left(records: Path) -> Callable:
    """Makes of the cases that a run is going to measure the time that they take, by earlier cases."""

    def of(cases):
        from qbench.sweeps.forecast.forecast import read_past

        return TimeLeft(cases, read_past({machine().id}, records, KEPT))

    return of


def print_result(result, folder: Path, as_json: bool) -> None:
    """The table on stdout, every form of it next to the records, and the path of the page."""
    from qbench.report import write_report  # imports numpy

    if not result.records.exists():
        return
    report = write_report(result.records, folder)
    if as_json:
        for row in report.rows:
            print_json(row)
    else:
        echo(report.text)
        echo(f"\npage: {report.page}")
