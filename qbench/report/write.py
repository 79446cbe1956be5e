"""`write_report`: records in, every form of the table out."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.report.load import load_records
from qbench.report.page import render_page
from qbench.report.render import to_csv, to_json, to_markdown, to_rows
from qbench.report.table import build_tables
from quant.artifacts.atomic import atomic_file
from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class Report:
    rows: list[dict[str, Any]]  # one a case, DESIGN's names
    text: str  # Markdown that also reads in a terminal
    page: Path  # report.html


def write_report(records: str | Path | Iterable[str | Path], folder: str | Path) -> Report:
    """report.md, .csv, .json and .html in `folder`, each whole or not at all.

    raises   InputError if there are no records or the folder cannot be written
    """
    frame = load_records(records)
    if frame.empty:
        raise InputError(f"{records}: no records; run `qbench sweep` first")
    tables = build_tables(frame)
    report = Report(rows=to_rows(tables), text=to_markdown(tables), page=Path(folder) / "report.html")
    forms = {"md": report.text, "csv": to_csv(tables), "json": to_json(tables), "html": render_page(tables)}
    for suffix, content in forms.items():
        with atomic_file(report.page.with_suffix(f".{suffix}")) as temporary:
            temporary.write_text(content, encoding="utf-8")
    return report
