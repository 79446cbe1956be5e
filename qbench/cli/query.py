"""`qbench query SQL`: one SELECT over all records."""

import csv
import io
import json
import math
from decimal import Decimal
from numbers import Number
from typing import TYPE_CHECKING, Any

import click

from qbench.cli.help import Command
from qbench.cli.output import echo, format_option, json_option, print_json
from qbench.measure.records.record_files import default_folders
from qbench.store import query, schema
from qbench.words.read import markdown_grid

if TYPE_CHECKING:
    from qbench.store.query import Answer

FORMS = ("md", "csv", "json")


@click.command(
    "query",
    cls=Command,
    examples=(
        "qbench query --schema",
        "qbench query 'select recipe, perplexity from quality' --records runs/quickstart",
    ),
)
@click.argument("sql", required=False)
@click.option("--schema", "show_schema", is_flag=True, help="List tables and columns instead.")
@click.option("--records", multiple=True, type=click.Path(), help="Files or folders  [default: results and runs]")
@format_option(FORMS)
@json_option
def command(sql: str | None, show_schema: bool, records: tuple[str, ...], form: str, as_json: bool) -> None:
    """Answer one SELECT over the tables results, kernels, versus and records. It cannot change them.

    \b
    qbench query "select recipe, kld_mean, tg_tok_s from results where model = 'ref:llama' order by kld_mean"
    qbench query "select op, shape, ms, share from kernels where tokens = 1"
    qbench query "select time, metrics->>'$.kld.mean' as kld from records where recipe = 'q4_0'"
    """
    if show_schema == (sql is not None):
        raise click.UsageError("give either SQL or --schema")
    answer = schema(records) if sql is None else query(sql, records or default_folders())
    if as_json or form == "json":
        for row in plain_rows(answer):
            print_json(row)
    else:
        echo({"md": to_markdown, "csv": to_csv}[form](answer), nl=False)


def plain_rows(answer: "Answer") -> list[dict[str, Any]]:
    """One object a row. A number that JSON cannot hold is null; JSON in a column is taken apart."""
    is_json = [kind == "JSON" for kind in answer.types]
    return [
        {
            name: json.loads(value) if parse and value is not None else plain(value)
            for name, parse, value in zip(answer.names, is_json, row, strict=True)
        }
        for row in answer.rows
    ]


def plain(value: Any) -> Any:
    """The value as JSON: lists and mappings of JSON values; a value of any other type becomes text."""
    if isinstance(value, (float, Decimal)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def to_csv(answer: "Answer") -> str:
    """Nothing where a value is missing."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(answer.names)
    writer.writerows(answer.rows)
    return text.getvalue()


def to_markdown(answer: "Answer") -> str:
    cells = [answer.names, *([cell(value) for value in row] for row in answer.rows)]
    numeric = [
        all(row[i] is None or (isinstance(row[i], Number) and not isinstance(row[i], bool)) for row in answer.rows)
        for i in range(len(answer.names))
    ]
    return markdown_grid(cells, numeric) + "\n"


def cell(value: Any) -> str:
    """6 digits of a number with a point; text on one line, its bars escaped."""
    if value is None:
        return "n/a"
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(str(value).split()).replace("|", "\\|")
