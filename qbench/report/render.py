"""Tables as Markdown for people, CSV and JSON for machines: the same rows in each."""

import io
import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from qbench.report.columns import columns_of, is_missing
from qbench.report.grid import markdown_grid
from qbench.report.table import Table


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
    rows += [[column.cell(row) for column in columns] for row in table.frame.to_dict("records")]
    return markdown_grid(rows, [column.numeric for column in columns])


def _footer(table: Table) -> str:
    failures = [f"{recipe} failed: {error}" for recipe, error in table.failures]
    return "\n".join([table.note + ".", *failures])


def to_rows(tables: list[Table]) -> list[dict[str, Any]]:
    """One plain mapping a row, raw values under the records' names, None for what was not measured."""
    frames = [row for table in tables for row in table.frame.to_dict("records")]
    return [{name: None if is_missing(value) else _plain(value) for name, value in row.items()} for row in frames]


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def to_json(tables: list[Table]) -> str:
    return json.dumps(to_rows(tables), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def to_csv(tables: list[Table]) -> str:
    text = io.StringIO()
    pd.concat([table.frame for table in tables]).drop(columns="versions").to_csv(text, index=False)
    return text.getvalue()
