"""`qbench report RECORDS...`: the tables and the page of records, from one run or several."""

from pathlib import Path

import click

from qbench.cli.help import Command
from qbench.cli.keep_path import require_clean_rows
from qbench.cli.output import echo, format_option
from qbench.measure.records.record import keep_records
from qbench.sweeps.suite.rules import parse_only
from qbench.words.written import names_in

FORMS = ("md", "csv", "json", "html")


def names(_context, _option, text: str | None) -> list[str] | None:
    """ "a, b" -> ["a", "b"]"""
    return list(names_in(text)) if text else None


@click.command(
    "report",
    cls=Command,
    sections={
        "Form": ("format", "html", "svg", "into", "marker", "columns", "only"),
        "Table": ("cache_table", "policies", "mixes", "interaction", "agreement", "attention_table"),
    },
    examples=("qbench report runs/quickstart", "qbench report runs/quickstart --html page.html"),
)
@click.argument("records", nargs=-1, required=True, type=click.Path())
@format_option(FORMS)
@click.option("-o", "--output", type=click.Path(), help="Write report.md, .csv, .json and .html into this folder.")
@click.option("--html", "page", type=click.Path(dir_okay=False), help="Write the page to this file.")
@click.option(
    "--svg",
    "picture",
    type=click.Path(dir_okay=False),
    help="Write a picture of quality against size, as NAME-light.svg and NAME-dark.svg.",
)
@click.option("--into", type=click.Path(), help="Put the Markdown between the qbench markers of this file.")
@click.option(
    "--only",
    multiple=True,
    metavar="AXIS=VALUE,...",
    help="Show only these rows of sweeps, for example model=real:*,recipe=q4_k_m|q8_0",
)
@click.option("--marker", default="quickstart", show_default=True, help="Name of the markers, with --into.")
@click.option(
    "--columns", callback=names, help="Columns of the Markdown tables, for example recipe,size_bytes,kld_mean."
)
@click.option("--cache-table", is_flag=True, help="Print one table of cache layouts: quality, recall, speed, memory.")
@click.option("--policies", is_flag=True, help="Print tables of cache policies: quality against held bytes and speed.")
@click.option(
    "--mixes", is_flag=True, help="Print one table of weights x KV format x policy x context: bytes, quality, speed."
)
@click.option("--interaction", is_flag=True, help="Print tables of joint losses over the sum of single losses.")
@click.option(
    "--agreement", is_flag=True, help="Print tables of how far models and texts agree on the order of recipes."
)
@click.option(
    "--attention-table", is_flag=True, help="Print tables of attention code by context: quality, speed, memory."
)
@click.option("--keep", type=click.Path(), help="Append the rows that this file or folder does not hold yet.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def command(
    records, form, output, page, picture, into, marker: str, columns, only, cache_table, policies, mixes,
    interaction, agreement, attention_table, keep, as_json: bool,
) -> None:  # fmt: skip
    """Tables of RECORDS (JSONL files or folders). Rows that cannot be compared are in separate tables.

    The page of --html and -o is one file that needs no network: filters, scatter plots, comparisons.
    """
    from qbench import report  # imports numpy
    from qbench.report.picture import write_pictures

    given = cache_table, policies, mixes, interaction, agreement, attention_table
    tables = [option for option, is_given in zip(report.NAMED_TABLES, given, strict=True) if is_given]
    if tables and (columns or as_json or form != "md"):
        raise click.UsageError(f"{', '.join(report.NAMED_TABLES)} are Markdown tables with columns of their own")
    if len(tables) > 1:
        raise click.UsageError(f"{', '.join(report.NAMED_TABLES)} exclude each other")

    rules = tuple(map(parse_only, only))

    def text(form: str) -> str:
        if tables:
            return report.render_named(tables[0], records, rules)
        return report.render_report(records, form, columns, rules)

    if output:
        echo(f"page: {report.write_report(records, output, rules).page}", err=True)
    if page:
        echo(f"page: {report.write_page(records, page, rules)}", err=True)
    if picture:
        for path in write_pictures(report.select_rows(report.load_records(records), rules), Path(picture)):
            echo(f"picture: {path}", err=True)
    if into:
        report.replace_between_markers(Path(into), marker, text("md"))
    if keep:
        require_clean_rows(records)
        added = sum(keep_records(Path(path), Path(keep)) for path in records)
        echo(f"{keep}: {added} rows added", err=True)
    if not (output or page or picture or into or keep):
        echo(text("json" if as_json else form), nl=False)
