"""`qbench quantize --target SIZE`: the options of a search, and its printed result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qbench.calibration.options import CalibrationOptions
from qbench.cli.count_option import count_option
from qbench.cli.keep_path import KeepPath
from qbench.cli.output import print_json, readable_bytes
from qbench.cli.progress import progress_bar
from qbench.measure.host.machine import available_cores
from qbench.measure.records.kept_row import keep_case
from qbench.search.target import WINDOWS, parse_target
from quant.errors import InputError

if TYPE_CHECKING:  # loaded when the command runs, not for its help
    from qbench.search.search import SearchResult

OPTIONS = (
    click.option(
        "--target",
        help="Search for the best mix of GGUF formats within a size: 4.5bpw (bits per weight), 3.2GiB; "
        "at a speed of decoding on this machine: 25tok/s; or both: 4.5bpw,25tok/s.",
    ),
    click.option(
        "--text",
        type=click.Path(path_type=Path),
        help="With --target: held-out text that the mix is checked on  [default: a reference model's held-out text]",
    ),
    count_option("--windows", default=WINDOWS, help="With --target: largest number of windows of the held-out text."),
    click.option(
        "--exhaustive",
        is_flag=True,
        help="With --target: check every fixed recipe on all windows, however clear the outcome is.",
    ),
    click.option(
        "--ablation",
        is_flag=True,
        help="With --target: check each step on the way to the mix, as --exhaustive: one format, fixed mixes, no GPTQ.",
    ),
    click.option("--keep", type=KeepPath(), help="With --target: append the search as a record to this path."),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a search."""

    target: str
    text: Path | None
    windows: int
    keep: str | None
    exhaustive: bool
    ablation: bool


def target_options(command: Callable) -> Callable:
    """Adds the options; the command gets them as `wanted`, a Wanted, or None without a target."""

    @wraps(command)
    def wrapped(target, text, windows, keep, exhaustive, ablation, **values):
        if target is None and text is not None:
            raise click.UsageError("--text is the held-out text of a search; give --target too, or drop it")
        if target is None and keep is not None:
            raise click.UsageError("--keep keeps what a search measured; give --target too, or drop it")
        if target is None and exhaustive:
            raise click.UsageError("--exhaustive is the longer check of a search; give --target too, or drop it")
        if target is None and ablation:
            raise click.UsageError("--ablation checks the steps of a search; give --target too, or drop it")
        wanted = None if target is None else Wanted(target, text, windows, keep, exhaustive or ablation, ablation)
        return command(wanted=wanted, **values)

    for option in reversed(OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def refuse_options(values: Mapping[str, object]) -> None:
    """raises UsageError for an option that a search does not take. values: option -> its value"""
    for option, value in values.items():
        if value:
            raise click.UsageError(f"--target searches for the recipe itself and does not take {option}; drop one")


def write_best(
    model: str,
    wanted: Wanted,
    output: str | None,
    calibration: CalibrationOptions,
    threads: int | None,
    as_json: bool,
) -> None:
    """Searches, writes the best file with its recipe, and prints the measured candidates."""
    from qbench.runtime import set_threads
    from qbench.search.plan import SearchOptions, plan_search
    from qbench.search.search import search
    from qbench.sources import open_source

    if output is None:
        raise InputError("--target needs -o, the name of the GGUF file; its recipe is written next to it")
    target, threads = parse_target(wanted.target), threads or available_cores()
    set_threads(threads)
    whole = {"exhaustive": wanted.exhaustive, "ablation": wanted.ablation}
    options = SearchOptions(target, Path(output), calibration, wanted.text, wanted.windows, threads, **whole)
    with progress_bar(f"search {model} for {target.text}") as update:
        plan = plan_search(open_source(model), options, update)
        result = search(plan, update)
    if wanted.keep is not None:
        keep_case(wanted.keep, result.case, result.metrics)
    if as_json:
        print_json(result.to_json())
    else:
        print_result(result)


def print_result(result: "SearchResult") -> None:
    """A row per candidate, then the choice with its reason."""
    click.echo(f"{'recipe':<20} {'size':>10} {'predicted':>10} {'KLD':>10}  mix / recipe, 95 % interval")
    for each in result.metrics.candidates:
        size, ratio = readable_bytes(each.size_bytes), each.ratio
        said = "" if ratio is None else f"{ratio.value:.3f}"
        if ratio is not None and ratio.interval is not None:
            said += f" ({ratio.low:.3f} to {ratio.high:.3f})"
        click.echo(f"{each.name:<20} {size:>10} {each.predicted:>10.3e} {each.kld.value:>10.3e}  {said}".rstrip())
    if (cost := result.metrics.cost) is not None and cost.ratio is not None:
        click.echo(
            f"the search took {cost.ratio:.1f} times the processor time of one GPTQ run ({cost.gptq_seconds:.0f} s)"
        )
    if (speed := result.metrics.speed) is not None:
        click.echo(f"decodes {speed.tok_s:.1f} tokens per second here, predicted {speed.predicted_tok_s:.1f}")
    click.echo(f"{result.artifact}: {result.metrics.chosen}: {result.metrics.reason}")
    click.echo(f"{result.recipe_file}: the recipe; --recipe {result.recipe_file} makes the same file again")
