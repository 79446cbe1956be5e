"""`qbench compare A B`: changes from A to B, with intervals and verdicts."""

import sys

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table
from rich.text import Text

from qbench.cli.help import Command
from qbench.cli.keep_path import KeepPath
from qbench.cli.output import echo, json_option, print_json, print_warning
from qbench.cli.progress import progress_bar
from qbench.cli.rank_compare import compare_ranks, divisions_of
from qbench.cli.rank_options import refuse_undivided
from qbench.cli.run_options import run_options
from qbench.cli.types import count_option
from qbench.run.axes import RANKS
from qbench.run.cache_spec import DENSE
from qbench.run.options import RunOptions
from qbench.words.written import names_in

COLOURS = {"better": "green", "worse": "red"}  # of verdicts on a terminal; the words say the same


@click.command(
    "compare",
    cls=Command,
    sections={
        "Records": ("baseline", "long", "noise_floor"),
        "Models": ("reference", "text", "windows", "protocol", "tasks", "limit", "recipes", "divisions"),
    },
    examples=("qbench compare ref:llama model.gguf", "qbench compare runs/quickstart --baseline q4_0"),
)
@click.argument("words", metavar="A [B]", nargs=-1, required=True)
@click.option("--baseline", metavar="RECIPE", help="Compare every row of A with this recipe's, or with KEY=VALUE,...")
@click.option("--long", is_flag=True, help="Print one line per metric, with p values, if several rows are compared.")
@click.option("--reference", help="For models: the unquantized one  [default: the ref: model among A and B]")
@click.option("--text", type=click.Path(), help="For models: UTF-8 text  [default: a reference model's own]")
@count_option("--windows", help="Number of windows to score, spread over the text  [default: all]")
@click.option(
    "--protocol",
    "protocols",
    multiple=True,
    help="For models: perplexity protocol; may be given several times  [default: gptq-2048]",
)
@click.option(
    "--tasks", help="For models: tasks of lm-eval instead of a text, item by item, for example blimp,ref_sums"
)
@count_option("--limit", help="Number of first items to use of each task  [default: all]")
@click.option("--noise-floor", is_flag=True, help="Measure the distance of model A from itself.")
@click.option("--keep", type=KeepPath(), help="Append the measurements as records to this file or folder.")
@click.option("--recipes", help="For several ranks: recipes to compare, for example bf16,q4_0  [default: as stored]")
@click.option(
    "--divisions",
    help="For several ranks: divisions to compare instead of the one of --ranks, for example tp,gather,pp,sp",
)
@json_option
@run_options("kv_format", "prefill", "compute", "threads", RANKS)
def command(
    words, baseline, long, noise_floor, keep, as_json, recipes, divisions, options: RunOptions, **how
) -> int | None:
    """Changes from A to B: better, same or worse, each with its interval.

    A and B are rows of records: a file or folder, alone or with conditions, as in results/quickstart:recipe=q4_k_m and
    then, in the same place, :recipe=q4_0. Or they are two models, measured now on the same text. With --ranks, A is one
    model, and its logits on several ranks are compared with those on one.
    """
    divided = divisions_of(options, divisions)
    if divided[0].layout.num_ranks > 1:
        given = ("reference", "protocols", "tasks", "limit")
        if len(words) > 1 or baseline or long or noise_floor or any(how[name] for name in given):
            raise click.UsageError(
                "--ranks takes one model, --recipes, --kv, --prefill, --text, --windows, --compute, --threads and "
                "--keep"
            )
        several, shown = (None,) if recipes is None else names_in(recipes), {"keep": keep, "as_json": as_json}
        return compare_ranks(words[0], several, divided, how["text"], how["windows"], **shown)
    refuse_undivided()
    if recipes or options.kv_format or options.prefill != DENSE:
        raise click.UsageError("--recipes, --kv and --prefill are for several ranks: give --ranks")
    from qbench.comparison.measured import Measuring
    from qbench.comparison.run import compare

    with progress_bar("compare") as update:
        is_chosen = click.get_current_context().get_parameter_source("compute") is ParameterSource.COMMANDLINE
        compute = options.compute if is_chosen else None  # records are measured already
        measuring = Measuring(**how, compute=compute, threads=options.threads)
        found = compare(words, measuring, baseline=baseline, noise_floor=noise_floor, keep=keep, progress=update)
    print_warning(found.warning)
    (print_rows if as_json else print_tables)(found, long)


def print_rows(found, long: bool) -> None:
    """One object a comparison, and the noise floor's record if it was measured."""
    from qbench.comparison.json_row import json_row  # imports numpy

    for comparison in found.comparisons:
        print_json(json_row(comparison).to_json())
    for floor in found.noise_floors:
        print_json(floor.to_json())


def print_tables(found, long: bool) -> None:
    """Ruled on a terminal, Markdown elsewhere."""
    from qbench.comparison.floor_table import make_floor_grid  # imports numpy
    from qbench.comparison.table import make_grid

    grids = [make_grid(found.comparisons, long=long)] if found.comparisons else []
    grids += map(make_floor_grid, found.noise_floors)
    for grid in grids:
        if sys.stdout.isatty():
            print_ruled(grid)
        else:
            echo(grid.markdown(), nl=False)


def print_ruled(grid) -> None:
    table = Table()
    for heading, numeric in zip(grid.headings, grid.numeric, strict=True):
        table.add_column(heading, justify="right" if numeric else "left")
    for row in grid.rows:
        # As Text: [0.9, 1.1] is an interval, not markup.
        table.add_row(*(Text(cell, COLOURS.get(cell.partition(" ")[0], "")) for cell in row))
    console = Console()
    console.print(table)
    for note in grid.notes:
        console.print(note, markup=False, highlight=False)
