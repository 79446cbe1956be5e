"""Records in, every form of the table out: as text, or as files."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.comparison.kept_launches import KeptLaunches, kept_launches
from qbench.measure.records.record import Record
from qbench.measure.records.record_files import make_folder, record_files
from qbench.report.attention import attention_markdown
from qbench.report.caches import caches_markdown
from qbench.report.interaction import interaction_markdown
from qbench.report.kinds import KINDS, kinds_markdown
from qbench.report.launches import joined, with_launches
from qbench.report.mixes import mixes_markdown
from qbench.report.newest import newest_records
from qbench.report.page import render_page
from qbench.report.policies import policies_markdown
from qbench.report.render import to_csv, to_json, to_markdown, to_rows
from qbench.report.table import Table, build_tables
from qbench.store import latest_records, load_with_others
from quant.atomic import atomic_file
from quant.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

# suffix -> its renderer
TABLE_FORMS = {"md": to_markdown, "csv": to_csv, "json": to_json}

Records = str | Path | Iterable[str | Path]


@dataclass(frozen=True, slots=True)
class Report:
    rows: list[dict[str, Any]]  # one per case, keys as in the records
    text: str  # Markdown that also reads in a terminal
    page: Path  # report.html


def render_report(records: Records, form: str, columns: Sequence[str] | None = None) -> str:
    """The tables of `records` as md, csv, json or html; those of KINDS are Markdown alone.

    columns  of the Markdown tables; None: the usual ones
    raises   InputError if there are no records for this form, or no such column
    """
    if form == "html":
        return _page(records)
    if form != "md":
        return TABLE_FORMS[form](_tables(records))
    frame, others = load_with_others(records)
    found = latest_records(others, kinds=KINDS.keys()) if others else {}
    of_kinds = kinds_markdown(record for record in found.values() if record.is_ok)
    if frame.empty and of_kinds:
        return of_kinds
    _require_rows(frame, records)
    return to_markdown(build_tables(with_launches(frame, records) if others else frame), columns) + (
        f"\n{of_kinds}" if of_kinds else ""
    )


@dataclass(frozen=True, slots=True)
class NamedTables:
    """Markdown tables for one question. absent: the end of the message if no case has a row in them"""

    markdown: Callable[[list[Record], KeptLaunches], str]
    absent: str


# Option of `qbench report` -> its tables
NAMED_TABLES = {
    "--cache-table": NamedTables(lambda rows, _: caches_markdown(rows), "has a cache"),
    "--policies": NamedTables(
        policies_markdown, "has a cache policy other than full; run `qbench sweep suites/policies.yaml`, for example"
    ),
    "--mixes": NamedTables(
        mixes_markdown,
        "has a KL divergence on windows as long as the context of its speed; "
        "run `qbench sweep suites/mixes-quality.yaml` and `qbench sweep suites/mixes-speed.yaml`, for example",
    ),
    "--interaction": NamedTables(
        lambda rows, _: interaction_markdown(rows),
        "loses by two of recipe, KV format and policy while others lose by one; "
        "run `qbench sweep suites/interaction.yaml`, for example",
    ),
    "--attention-table": NamedTables(
        lambda rows, _: attention_markdown(rows), "has chosen its attention; run `qbench sweep suites/attention.yaml`"
    ),
}


def render_named(option: str, records: Records) -> str:
    """The tables of an option of NAMED_TABLES. raises InputError, naming the records, if no measured case is in them"""
    tables, launches = NAMED_TABLES[option], kept_launches([str(file) for file in record_files(records)])
    text = tables.markdown([joined(row, launches) for row in _measured(records)], launches)
    if not text:
        raise InputError(f"{_names(records)}: no measured case {tables.absent}")
    return text


def _measured(records: Records) -> list[Record]:
    """The latest row of each case of a sweep that did not fail. raises InputError without one"""
    found = [row for row in latest_records(records, kinds=(None,)).values() if row.is_ok]
    if not found:
        raise InputError(f"{_names(records)}: no measured case of a sweep")
    return found


def _names(records: Records) -> str:
    return ", ".join(map(str, record_files(records)))


def write_page(records: Records, path: str | Path) -> Path:
    """The page at `path`, whole or not at all. raises InputError if there are no records or it cannot be written"""
    return _write(Path(path), _page(records))


def write_report(records: Records, folder: str | Path) -> Report:
    """report.md, .csv, .json and .html in `folder`, each whole or not at all.

    raises   InputError if there are no records or the folder cannot be written
    """
    frame = _frame(records)
    tables = build_tables(frame)
    page = Path(folder) / "report.html"
    try:
        make_folder(Path(folder))
    except OSError as error:
        raise InputError(f"{folder}: cannot make the folder: {error.strerror}; choose another") from error
    for form, render in TABLE_FORMS.items():
        _write(page.with_suffix(f".{form}"), render(tables))
    _write(page, render_page(frame, newest_records(frame, records)))
    return Report(rows=to_rows(tables), text=to_markdown(tables), page=page)


def _write(path: Path, text: str) -> Path:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _frame(records: Records) -> "pd.DataFrame":
    frame, others = load_with_others(records)
    _require_rows(frame, records)
    return with_launches(frame, records) if others else frame


def _require_rows(frame: "pd.DataFrame", records: Records) -> None:
    if frame.empty:
        raise InputError(f"{_names(records)}: no records of a sweep; run `qbench sweep` first")


def _tables(records: Records) -> list[Table]:
    return build_tables(_frame(records))


def _page(records: Records) -> str:
    frame = _frame(records)
    return render_page(frame, newest_records(frame, records))
