"""`qbench sweep SUITE`: quantize, evaluate and bench every case of a suite, and print the table."""

from pathlib import Path

import click

from qbench.cli.output import json_option, print_json
from qbench.cli.progress import Update, progress_bar


@click.command("sweep")
@click.argument("suite", type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="Folder of the run  [default: runs/<name of the suite>]")
@json_option
def command(suite: str, output: str | None, as_json: bool) -> None:
    """Measure every case of SUITE that the folder does not hold yet; safe to stop and to start again."""
    from qbench.harness.suite import load_suite
    from qbench.harness.sweep import run_sweep

    loaded = load_suite(suite)
    folder = Path(output) if output else Path("runs") / loaded.name
    with progress_bar(loaded.name) as update:
        result = run_sweep(loaded, folder, Narrator(update))
    print_result(result, folder, as_json)
    if result.failed:
        raise click.exceptions.Exit(1)


class Narrator:
    """Tells a sweep's events: a line on stderr as each case ends, the bar for the case that runs."""

    def __init__(self, update: Update) -> None:
        self.update = update

    def __call__(self, event) -> None:
        case = f"{event.model} {event.recipe}"
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

    report = write_report(result.records, folder)
    if as_json:
        for row in report.rows:
            print_json(row)
    else:
        click.echo(report.text)
        click.echo(f"\npage: {report.page}")
