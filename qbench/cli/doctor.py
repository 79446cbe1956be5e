"""`qbench doctor ARTIFACT`: damage in a quantized model."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from qbench.cli.help import Command
from qbench.cli.output import echo, json_option, print_json
from qbench.cli.progress import progress_bar

if TYPE_CHECKING:  # loaded when the command runs, not for its help
    from quant.doctor.report import Report, TensorRow

COLUMNS = ("tensor", "format", "SQNR dB", "saturated", "scale from", "to", "dead", "NaN")


@click.command(
    "doctor", cls=Command, examples=("qbench doctor model.gguf", "qbench doctor model.gguf --source ref:llama")
)
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--source", help="The model it was made from  [default: the one in its manifest]")
@json_option
def command(artifact: Path, source: str | None, as_json: bool) -> None:
    """Look for damage in ARTIFACT, a .gguf file or a directory. Exit status 1 if something is found."""
    from qbench.sources import open_source
    from quant.doctor import examine

    with progress_bar(f"examine {artifact}") as update:
        report = examine(artifact, open_source, spec=source, progress=update)
    if as_json:
        print_json(report.summary.to_json())
    else:
        print_report(report)
    if report.findings:
        raise click.exceptions.Exit(1)


def print_report(report: "Report") -> None:
    """The table, the tensors that could not be examined, and the findings last, so that they are seen."""
    rows = [COLUMNS, *map(_cells, report.rows())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for row in rows if report.tensors else ():
        names = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        echo("  ".join(names + numbers))
    for check, why in report.skipped.items():
        echo(f"{check}: n/a, {why}")
    for found in report.findings:
        echo(f"{found.check}: {found.where}: {found.message}")
    count = len(report.findings)
    echo(f"{count} finding{'s' if count > 1 else ''}" if count else "healthy")


def _cells(row: "TensorRow") -> tuple[str, ...]:
    sqnr = "same" if row.identical else _number(row.sqnr_db, "{:.1f}")
    saturation = None if row.saturation is None else 100 * row.saturation
    return (
        row.name,
        row.format,
        sqnr,
        _number(saturation, "{:.2f} %"),
        _number(row.scale_min, "{:.2e}"),
        _number(row.scale_max, "{:.2e}"),
        f"{row.num_dead_groups}/{row.num_groups}" if row.num_groups else "n/a",
        str(row.num_not_finite),
    )


def _number(value: float | None, form: str) -> str:
    return "n/a" if value is None else form.format(value)
