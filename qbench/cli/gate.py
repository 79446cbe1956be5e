"""`qbench gate`: whether a change made anything worse, and how sure that is."""

from pathlib import Path

import click

from qbench.cli.help import Command
from qbench.cli.keep_path import KeepPath
from qbench.cli.output import budget_option, echo, json_option, print_json
from qbench.cli.types import Percentage, count_option
from qbench.gate.comment import markdown, plain
from qbench.gate.options import GATES, GateOptions, suite_file
from qbench.gate.result import keep_gate
from qbench.measure.records.record_files import check_writable
from quant.errors import InputError


def _gates(name: str, text: str):
    return click.option(name, multiple=True, type=click.Choice(GATES), help=text)


@click.command(
    "gate",
    cls=Command,
    sections={"Comparison": ("suite", "baseline", "skip", "see", "budget", "any_machine", "ranks")},
    examples=(
        "qbench gate --suite quickstart --save runs/baseline",
        "qbench gate --suite quickstart --baseline runs/baseline",
    ),
)
@click.option("--suite", required=True, help="A suite's file, or the name of one under suites/.")
@click.option("--baseline", help="Baseline: a file or folder of records, or a git commit.")
@click.option(
    "--save",
    type=KeepPath(),
    help="Append the measurements to this file or folder as a baseline, and compare nothing.",
)
@_gates("--report", "Show this gate, but never fail because of it.")
@_gates("--skip", "Do not measure this gate.")
@click.option("--see", type=Percentage(), default="5%", show_default=True, help="Smallest slowdown to detect.")
@budget_option(300)
@click.option(
    "--any-machine", is_flag=True, help="Accept records of another machine for gates that depend little on the machine."
)
@count_option("--ranks", help="Number of ranks on which the models must have the logits of one rank")
@click.option("--comment", type=click.Path(dir_okay=False), help="Write Markdown for a pull request into this file.")
@click.option("--keep", type=KeepPath(), help="Append the findings with raw samples to this file or folder.")
@click.option("-o", "--output", type=click.Path(), default="runs/gate", show_default=True, help="Folder of the run.")
@json_option
def command(
    suite, baseline, save, report, skip, see, budget, any_machine, ranks, comment, keep, output, as_json
) -> None:
    """Measure SUITE and compare it with a baseline. Exit status 1 if anything is worse; the output names it.

    Speed is a gate only against a commit, which is built and measured in turn. Against records it is a report.
    """
    if (baseline is None) == (save is None):
        raise click.UsageError("give --baseline to compare with one, or --save to write one")
    path = suite_file(suite)
    check_targets(comment, [target for target in (save, keep) if target is not None])
    if save is not None:
        save_baseline(path, Path(save), Path(output))
    else:
        how = {"report": frozenset(report), "skip": frozenset(skip), "any_machine": any_machine, "ranks": ranks or 1}
        options = GateOptions(path, baseline, see=see, budget_s=budget, folder=Path(output), **how)
        compare(options, comment, keep, as_json)


def check_targets(comment: str | None, records: list[str]) -> None:
    """Measuring takes minutes, so paths that cannot be written are refused before. raises InputError"""
    for target in records:
        check_writable(Path(target))
    if comment is not None:
        check_writable(Path(comment))
        if not Path(comment).absolute().parent.is_dir():
            raise InputError(f"{comment}: there is no folder {Path(comment).parent}; make it first")


def save_baseline(suite: Path, target: Path, folder: Path) -> None:
    from qbench.gate.baseline import write_baseline

    written = write_baseline(suite, target, folder)
    echo(f"{written.file}: {written.num_rows} rows")


def compare(options: GateOptions, comment: str | None, keep: str | None, as_json: bool) -> None:
    from qbench.gate.run import run_gate

    result = run_gate(options, tell)
    if comment is not None:
        Path(comment).write_text(markdown(result), encoding="utf-8")
    if keep is not None:
        keep_gate(Path(keep), result)
    print_json(result.report().to_json()) if as_json else echo(plain(result), nl=False)
    if result.is_red:
        raise click.exceptions.Exit(1)


def tell(line: str) -> None:
    echo(line, err=True)
