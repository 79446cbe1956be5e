"""Records in, every form of the table out: as text, or as files."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.report.page import render_page
from qbench.report.render import to_csv, to_json, to_markdown, to_rows
from qbench.report.speeds import KERNEL, VERSUS, speeds_markdown
from qbench.report.table import Table, build_tables
from qbench.store import latest_records, load_records
from quant.atomic import atomic_file
from quant.errors import InputError

# suffix -> what renders it
FORMS = {"md": to_markdown, "csv": to_csv, "json": to_json, "html": render_page}

Records = str | Path | Iterable[str | Path]


@dataclass(frozen=True, slots=True)
class Report:
    rows: list[dict[str, Any]]  # one a case, keys as in the records
    text: str  # Markdown that also reads in a terminal
    page: Path  # report.html


def render_report(records: Records, form: str) -> str:
    """The tables of `records` in one of FORMS; those of kernels and comparisons are Markdown alone.

    raises   InputError if there are no records for this form
    """
    speeds = speeds_markdown(latest_records(records, kinds=(KERNEL, VERSUS)).values())
    if form != "md" or not speeds:
        return FORMS[form](_tables(records))
    return speeds if load_records(records).empty else to_markdown(_tables(records)) + "\n" + speeds


def write_report(records: Records, folder: str | Path) -> Report:
    """report.md, .csv, .json and .html in `folder`, each whole or not at all.

    raises   InputError if there are no records or the folder cannot be written
    """
    tables = _tables(records)
    page = Path(folder) / "report.html"
    for form, render in FORMS.items():
        with atomic_file(page.with_suffix(f".{form}")) as temporary:
            temporary.write_text(render(tables), encoding="utf-8")
    return Report(rows=to_rows(tables), text=to_markdown(tables), page=page)


def _tables(records: Records) -> list[Table]:
    frame = load_records(records)
    if frame.empty:
        raise InputError(f"{records}: no records; run `qbench sweep` first")
    return build_tables(frame)
