"""`qbench sweep SUITE`: quantize, evaluate and bench every case of a suite, and print the table."""

from pathlib import Path

import click

from qbench.cli.output import json_option, print_json
from qbench.cli.progress import Update, progress_bar

KEPT = Path("results")  # rows of earlier sweeps, which tell how long cases take
INTERRUPTED = 130  # 128 + SIGINT, as shells tell it


@click.command("sweep")
@click.argument("suite", type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="Folder of the run  [default: runs/<name of the suite>]")
@click.option("--only", multiple=True, metavar="AXIS=VALUE,...", help="Such cases, as recipe=q4_k_m|q4_0,model=ref:*")
@click.option("--shuffle", type=int, metavar="SEED", help="Measure in a random order, the same for the same seed.")
@click.option("--limit", type=click.IntRange(min=1), help="Measure so many cases now at most.")
@click.option("--resume/--fresh", default=True, show_default=True, help="Keep what is measured, or measure anew.")
@click.option("--plan", is_flag=True, help="Print what would run and what it takes, and write nothing.")
@json_option
@click.pass_context
def command(ctx, suite: str, output: str | None, only, shuffle, limit, resume, plan, as_json) -> None:
    """Measure every case of SUITE that the folder does not hold yet; safe to stop and to start again.

    Ctrl-C ends it after the case that runs; a second one at once.
    """
    from qbench.harness.interrupt import gentle_interrupt
    from qbench.harness.rules import parse_only
    from qbench.harness.suite import load_suite
    from qbench.harness.sweep import Selection, run_sweep

    selection = Selection(tuple(map(parse_only, only)), shuffle, not resume, limit)
    loaded = load_suite(suite)
    folder = Path(output) if output else Path("runs") / loaded.name
    if plan:
        plan_sweep(loaded, folder, selection, as_json)
        return
    with progress_bar(loaded.name) as update, gentle_interrupt(say_stopping) as stop:
        result = run_sweep(loaded, folder, Narrator(update), selection=selection, stop=stop)
    print_result(result, folder, as_json)
    if result.left:
        click.echo(f"{result.left} cases are left: the same command goes on", err=True)
    ctx.exit(INTERRUPTED if stop() else int(result.failed > 0))


def plan_sweep(suite, folder: Path, selection, as_json: bool) -> None:
    from qbench.cli.sweep_plan import print_plan
    from qbench.harness.forecast import forecast_sweep

    with progress_bar(f"plan {suite.name}") as update:
        forecast = forecast_sweep(suite, folder, selection, KEPT, update)
    print_plan(suite, forecast, as_json)


def say_stopping() -> None:
    click.echo("qbench: this case comes to its end, then the sweep stops; Ctrl-C again stops it now", err=True)


class Narrator:
    """Tells a sweep's events: a line on stderr as each case ends, the bar for the case that runs."""

    def __init__(self, update: Update) -> None:
        self.update = update

    def __call__(self, event) -> None:
        case = f"{event.point['model']} {event.point['recipe']}"
        if event.kind == "progress" and event.progress:
            done, total, what = event.progress
            self.update(done, total, f"{event.index + 1}/{event.total} {case}: {event.stage}, {what}")
        elif event.kind == "progress":
            self.update(0, 0, f"{event.index + 1}/{event.total} {case}: {event.stage}")
        elif event.kind == "failed":
            click.echo(f"{event.index + 1}/{event.total} {case}: failed: {event.record['error']}", err=True)
        elif event.kind in ("done", "skipped"):
            ending = "measured" if event.kind == "done" else "already measured"
            click.echo(f"{event.index + 1}/{event.total} {case}: {ending}", err=True)


def print_result(result, folder: Path, as_json: bool) -> None:
    """The table on stdout, every form of it beside the records, and the path of the page."""
    from qbench.report import write_report

    if not result.records.exists():
        return
    report = write_report(result.records, folder)
    if as_json:
        for row in report.rows:
            print_json(row)
    else:
        click.echo(report.text)
        click.echo(f"\npage: {report.page}")
