"""`qbench compare MODEL --tp N`: the table of the equivalence gate."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from qbench.cache_spec import DENSE
from qbench.cli.output import print_json
from qbench.cli.progress import progress_bar
from qbench.cli.rank_options import is_silent, join
from qbench.markdown_grid import markdown_grid
from qbench.measure.records.kept_ranks import setup_name
from qbench.measure.records.kept_row import keep_row
from qbench.run_options import RunOptions

if TYPE_CHECKING:
    from qbench.compare.several_ranks import RankDistance

DIVISION = ("tp", "pp", "cut", "ep", "sp", "micro_batches", "dispatch")
CASE_KEYS = ("model", "recipe", *DIVISION, "kv_format", "prefill", "compute")
SETTINGS = ("threads", "text", "windows")
HEADINGS = ("recipe", "verdict", "max logit delta", "mean KLD", "max KLD", "same top", "floor: mean KLD", "tokens")


def compare_ranks(
    model: str,
    recipes: Sequence[str | None],
    options: RunOptions,
    text: str | None,
    windows: int | None,
    *,
    keep: str | None,
    as_json: bool,
) -> int:
    """Print one row per recipe. Returns the exit status: 1 if a row is red

    keep  file or folder that gets a record per row, from rank 0
    """
    options = join(model, options)
    from qbench.compare.several_ranks import RED, measure_distances

    with progress_bar(f"compare {model}") as update:
        found = list(measure_distances(model, recipes, options, text=text, max_windows=windows, progress=update))
    if keep is not None and not is_silent():
        about = settings(options, text, windows)
        for row in found:
            keep_row(keep, row.to_json() | about, {"kind": "ranks"}, (*CASE_KEYS, *SETTINGS))
    if as_json:
        for row in found:
            print_json(row.to_json())
    else:
        click.echo(f"{model} on {options.layout.num_ranks} ranks ({options.layout}), compute {options.compute}\n")
        click.echo(markdown_grid([HEADINGS, *map(cells, found)], [False, False, *[True] * 6]))
        for row in found:
            if row.found.reason is not None:
                click.echo(f"\n{setup_name(row.recipe, row.kv_format, row.prefill)}: {row.found.reason}")
    return 1 if any(row.found.verdict in RED for row in found) else 0


def settings(options: RunOptions, text: str | None, windows: int | None) -> dict[str, object]:
    """Keys of the case that a row does not have itself. A row of dense prefill is the case of rows without that key."""
    prefill = None if options.prefill == DENSE else options.prefill
    return {"threads": options.threads, "text": text, "windows": windows, "prefill": prefill}


def cells(row: "RankDistance") -> Sequence[str]:
    delta, floor, verdict = row.found.delta, row.found.floor, row.found.verdict
    recipe = setup_name(row.recipe, row.kv_format, row.prefill)
    if delta is None or floor is None:
        return [recipe, verdict, *["n/a"] * 6]
    numbers = [f"{value:.2e}" for value in (delta.max_logit, delta.mean_kld, delta.max_kld)]
    return [recipe, verdict, *numbers, f"{delta.same_top:.4f}", f"{floor.mean_kld:.2e}", str(delta.num_tokens)]
