"""Tables as Markdown for people, CSV and JSON for machines: the same rows in each."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from qbench.report.columns import columns_of
from qbench.report.table import Table, is_missing
from qbench.words.read import markdown_grid


def to_markdown(tables: list[Table], columns: Sequence[str] | None = None) -> str:
    """Every table with its title and note; columns padded, so that it reads in a terminal too.

    columns  their keys; None: the usual ones that have anything to show
    raises   InputError for a column that is not known
    """
    parts = [f"**{table.title}**\n\n{markdown_table(table, columns)}\n\n{_footer(table)}" for table in tables]
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table, names: Sequence[str] | None = None) -> str:
    columns = columns_of(table, names)
    rows = [[column.full_heading for column in columns]]
    rows += map(list, zip(*(column.cells(table.columns) for column in columns), strict=True))
    return markdown_grid(rows, [column.numeric for column in columns])


def _footer(table: Table) -> str:
    failures = [f"{recipe} failed: {error}" for recipe, error in table.failures]
    return "\n".join([table.note + ".", *failures])


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
