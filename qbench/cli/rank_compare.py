"""`qbench compare MODEL --ranks`: the table of the equivalence gate."""

from collections.abc import Sequence
from dataclasses import replace

import click

from qbench.cli.output import print_json
from qbench.cli.progress import progress_bar
from qbench.cli.rank_options import is_silent, join
from qbench.measure.records.kept_ranks import RED, RankDistance, setup_name
from qbench.measure.records.kept_row import keep_row
from qbench.run.cache_spec import DENSE
from qbench.run.options import RunOptions
from qbench.run.rank_layout import DIVISIONS, RankLayout, find_world
from qbench.words.read import markdown_grid
from qbench.words.written import names_in
from quant.errors import InputError

DIVISION = ("tp", "pp", "cut", "ep", "sp", "micro_batches", "dispatch")
CASE_KEYS = ("model", "recipe", *DIVISION, "kv_format", "prefill", "compute")
SETTINGS = ("threads", "text", "windows")
HEADINGS = ("recipe", "verdict", "max logit delta", "mean KLD", "max KLD", "same top", "floor: mean KLD", "tokens")


def compare_ranks(
    model: str,
    recipes: Sequence[str | None],
    divisions: Sequence[RunOptions],
    text: str | None,
    windows: int | None,
    *,
    keep: str | None,
    as_json: bool,
) -> int:
    """Print one row per recipe and division. Returns the exit status: 1 if a row is red

    divisions  of the same number of ranks
    keep       file or folder that gets a record per row, from rank 0
    """
    threads = join(model, divisions[0]).threads
    divisions = [each.with_threads(threads) for each in divisions]
    from qbench.comparison.several_ranks import measure_distances

    found, about = [], settings(divisions[0], text, windows)
    with progress_bar(f"compare {model}") as update:
        for row in measure_distances(model, recipes, divisions, text=text, max_windows=windows, progress=update):
            found.append(row)
            if keep is not None and not is_silent():
                keep_row(keep, row.to_json() | about, {"kind": "ranks"}, (*CASE_KEYS, *SETTINGS))
    if as_json:
        for row in found:
            print_json(row.to_json())
    else:
        print_tables(model, divisions, found)
    return 1 if any(row.found.verdict in RED for row in found) else 0


def print_tables(model: str, divisions: Sequence[RunOptions], found: Sequence[RankDistance]) -> None:
    """One for each division."""
    for number, options in enumerate(divisions):
        rows, layout = found[number :: len(divisions)], options.layout
        click.echo("\n" * (number > 0) + f"{model} on {layout.num_ranks} ranks ({layout}), compute {options.compute}\n")
        click.echo(markdown_grid([HEADINGS, *map(cells, rows)], [False, False, *[True] * 6]))
        for row in rows:
            if row.found.reason is not None:
                click.echo(f"\n{setup_name(row.recipe, row.kv_format, row.prefill)}: {row.found.reason}")


def divisions_of(options: RunOptions, names: str | None) -> list[RunOptions]:
    """The options, divided in each way that --divisions names, over the ranks that torchrun started; None: as they are

    raises   InputError for an unknown name, for a division of the options, and for fewer than two ranks
    """
    if names is None:
        return [options]
    if options.division is not None:
        raise InputError(f"--divisions names whole divisions; leave out --ranks {options.layout.words}")
    world = find_world()
    if world is None or world.size < 2:
        raise InputError("--divisions needs two ranks or more; start them with torchrun --nproc-per-node 2 -m qbench")
    for name in names_in(names):
        if name not in DIVISIONS:
            raise InputError(f"division {name!r} is unknown; known: {', '.join(DIVISIONS)}")
    return [replace(options, division=str(RankLayout.of(name, world.size))) for name in names_in(names)]


def settings(options: RunOptions, text: str | None, windows: int | None) -> dict[str, object]:
    """Keys of the case that a row does not have itself. A row of dense prefill is the case of rows without that key."""
    prefill = None if options.prefill == DENSE else options.prefill
    return {"threads": options.threads, "text": text, "windows": windows, "prefill": prefill}


def cells(row: RankDistance) -> Sequence[str]:
    delta, floor, verdict = row.found.delta, row.found.floor, row.found.verdict
    recipe = setup_name(row.recipe, row.kv_format, row.prefill)
    if delta is None or floor is None:
        return [recipe, verdict, *["n/a"] * 6]
    numbers = [f"{value:.2e}" for value in (delta.max_logit, delta.mean_kld, delta.max_kld)]
    return [recipe, verdict, *numbers, f"{delta.same_top:.4f}", f"{floor.mean_kld:.2e}", str(delta.num_tokens)]
