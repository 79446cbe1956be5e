"""Records in, every form of the table out: Markdown, CSV or JSON, as text or as files."""

import csv
import heapq
import io
import json
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.comparison.kept_launches import KeptLaunches, joined, kept_launches
from qbench.measure.records.record import Record, line_of, parse_record
from qbench.measure.records.record_files import make_folder, record_files
from qbench.report.agreement import agreement_markdown
from qbench.report.attention import attention_markdown
from qbench.report.caches import caches_markdown
from qbench.report.columns import columns_of
from qbench.report.interaction import interaction_markdown
from qbench.report.kinds import KINDS, kinds_markdown
from qbench.report.launches import with_launches
from qbench.report.mixes import mixes_markdown
from qbench.report.page import render_page
from qbench.report.policies import policies_markdown
from qbench.report.table import Table, build_tables, is_missing
from qbench.run.axes import AXES
from qbench.store import latest_records, load_with_others
from qbench.store.load import Paths
from qbench.sweeps.suite.rules import Rule
from qbench.words.read import markdown_grid
from quant.atomic import atomic_file
from quant.errors import InputError
from quant.regular_file import open_regular

if TYPE_CHECKING:
    import pandas as pd


def to_markdown(tables: list[Table], columns: Sequence[str] | None = None) -> str:
    """Every table with its title and note; columns padded, so that it reads in a terminal too.

    columns  their keys; None: the usual ones that have anything to show
    raises   InputError for a column that is not known
    """
    parts = [f"**{table.title}**\n\n{markdown_table(table, columns)}\n\n{_footer(table, columns)}" for table in tables]
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table, names: Sequence[str] | None = None) -> str:
    columns = columns_of(table, names)
    rows = [[column.full_heading for column in columns]]
    rows += map(list, zip(*(column.cells(table.columns) for column in columns), strict=True))
    return markdown_grid(rows, [column.numeric for column in columns])


def _footer(table: Table, columns: Sequence[str] | None) -> str:
    failures = [f"{recipe} failed: {error}" for recipe, error in table.failures]
    return "\n".join([table.note_for(columns) + ".", *failures])


def to_rows(tables: list[Table]) -> list[dict[str, Any]]:
    """One plain mapping per row, raw values under the records' names, None for values that were not measured."""
    return [dict(zip(table.columns, row, strict=True)) for table in tables for row in _values(table, None)]


def _values(table: Table, missing: Any) -> Iterator[tuple[Any, ...]]:
    """The rows, with `missing` for values that were not measured."""
    filled = ([missing if is_missing(value) else value for value in values] for values in table.columns.values())
    return zip(*filled, strict=True)


def to_json(tables: list[Table]) -> str:
    return json.dumps(to_rows(tables), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def to_csv(tables: list[Table]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [name for name in tables[0].columns if name != "versions"]
    writer.writerow(names)
    for table in tables:
        shown = Table(table.group, {name: table.columns[name] for name in names})
        writer.writerows(_values(shown, ""))
    return text.getvalue()


# suffix -> its renderer
TABLE_FORMS = {"md": to_markdown, "csv": to_csv, "json": to_json}

Records = str | Path | Iterable[str | Path]


@dataclass(frozen=True, slots=True)
class Report:
    rows: list[dict[str, Any]]  # one per case, keys as in the records
    text: str  # Markdown that also reads in a terminal
    page: Path  # report.html


def render_report(records: Records, form: str, columns: Sequence[str] | None = None, only: Sequence[Rule] = ()) -> str:
    """The tables of `records` as md, csv, json or html; those of KINDS are Markdown alone.

    columns  of the Markdown tables; None: the usual ones
    only     rows of a sweep that one of these rules matches; empty: all records
    raises   InputError if there are no records for this form, or no such column
    """
    if form == "html":
        return _page(records, only)
    if form != "md":
        return TABLE_FORMS[form](build_tables(_frame(records, only)))
    if only:
        return to_markdown(build_tables(_frame(records, only)), columns)
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
    "--agreement": NamedTables(
        lambda rows, _: agreement_markdown(rows),
        "belongs to two models or texts with six recipes in common; "
        "give the records of `qbench sweep quality` and `qbench sweep real`, for example",
    ),
    "--attention-table": NamedTables(
        lambda rows, _: attention_markdown(rows), "has chosen its attention; run `qbench sweep suites/attention.yaml`"
    ),
}


def render_named(option: str, records: Records, only: Sequence[Rule] = ()) -> str:
    """The tables of an option of NAMED_TABLES. raises InputError, naming the records, if no measured case is in them"""
    tables, launches = NAMED_TABLES[option], kept_launches([str(file) for file in record_files(records)])
    rows = [row for row in _measured(records) if not only or any(rule.matches(row.model_case) for rule in only)]
    text = tables.markdown([joined(row, launches) for row in rows], launches)
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


def write_page(records: Records, path: str | Path, only: Sequence[Rule] = ()) -> Path:
    """The page at `path`, whole or not at all. raises InputError if there are no records or it cannot be written"""
    return _write(Path(path), _page(records, only))


def write_report(records: Records, folder: str | Path, only: Sequence[Rule] = ()) -> Report:
    """report.md, .csv, .json and .html in `folder`, each whole or not at all.

    raises   InputError if there are no records or the folder cannot be written
    """
    frame = _frame(records, only)
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


def _frame(records: Records, only: Sequence[Rule] = ()) -> "pd.DataFrame":
    frame, others = load_with_others(records)
    _require_rows(frame, records)
    return select_rows(with_launches(frame, records) if others else frame, only)


def select_rows(frame: "pd.DataFrame", only: Sequence[Rule]) -> "pd.DataFrame":
    """The rows that one of the rules matches; all of them without a rule. raises InputError if nothing is left"""
    if not only:
        return frame
    texts = {
        axis.name: [axis.nothing if is_missing(value) else axis.write(value) for value in frame[name].tolist()]
        for axis in AXES
        if axis.heading is not None and (name := axis.heading.column or axis.name) in frame
    }
    rows = ({name: texts[name][i] for name in texts} for i in range(len(frame)))
    found = [any(rule.matches_texts(row) for rule in only) for row in rows]
    if not any(found):
        raise InputError(f"--only {' --only '.join(map(str, only))} matches none of the {len(frame)} rows")
    return frame.loc[found].reset_index(drop=True)


def _require_rows(frame: "pd.DataFrame", records: Records) -> None:
    if frame.empty:
        raise InputError(f"{_names(records)}: no records of a sweep; run `qbench sweep` first")


def _page(records: Records, only: Sequence[Rule]) -> str:
    frame = _frame(records, only)
    return render_page(frame, newest_records(frame, records))


def newest_records(frame: "pd.DataFrame", paths: Paths) -> Iterator[tuple[int, bytes]]:
    """(row of `frame`, its record as a line of JSON), read from the ends of the files as far as it is asked for.

    frame    of `load_records(paths)`
    """
    # As lists: pandas gives its texts one by one at a tenth of the speed.
    identity = zip(*(frame[name].tolist() for name in ("key", "machine", "time")), strict=True)
    rows = {found: row for row, found in enumerate(identity)}
    # Rows are appended as they are measured, so each file is in the order of time.
    files = [_records_from_the_end(path) for path in record_files(paths)]
    for record in heapq.merge(*files, key=lambda record: record.time, reverse=True):
        row = rows.pop((record.key, record.machine.id, record.time), None)
        if row is not None:
            yield row, line_of(record).rstrip(b"\n")


def _records_from_the_end(path: Path) -> Iterator[Record]:
    """The records of a file, last first; invalid lines were reported when the table was made."""
    with open_regular(path) as file:
        if not file.seek(0, 2):
            return  # nothing can be mapped
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            end = len(text)
            while end > 0:
                start = text.rfind(b"\n", 0, end) + 1
                record = parse_record(text[start:end])
                if record is not None:
                    yield record
                end = start - 1
