"""`qbench race MODEL...`: speeds of several models, caches or processes, measured in turn, and their ratios."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import click

from qbench.cli.bench_caches import print_caches
from qbench.cli.bench_lines import print_row, readable_comparison
from qbench.cli.help import Command
from qbench.cli.keep_path import KeepPath
from qbench.cli.option_group import with_options
from qbench.cli.output import cpu_time_option, json_option, print_json, print_pairs, print_warning
from qbench.cli.policy_depths import PolicyAtDepth, cache_option, entries_of, policy_option
from qbench.cli.progress import progress_bar
from qbench.cli.run_options import run_options
from qbench.cli.speed_options import ATTENDS, SpeedOptions, speed_options
from qbench.cli.types import FiniteRange
from qbench.measure.host.conditions import busy_share, busy_warning
from qbench.measure.launch import MAX_LAUNCHES
from qbench.measure.records.kept_kinds import VersusCase, VersusMetrics
from qbench.measure.records.kept_row import keep_row
from qbench.run.choices import CPU, check_device
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork
from qbench.speed.peaks import unmeasured_warning

MODELS, CACHES, LAUNCHES, PEER = "several models", "caches or policies", "launches of one model", "--vs"
# Option -> the races that it is for.
TAKEN_BY: Mapping[str, Sequence[str]] = {
    "--cache and --policy": (CACHES,),
    "--device": (CACHES,),
    "--memory": (CACHES,),
    "--launches": (MODELS, LAUNCHES),
    "--cpu-time": (MODELS, PEER),
    "--keep": (PEER,),
}


@dataclass(frozen=True, slots=True)
class Rivals:
    """Values of the options that name contenders, and how they race.

    caches, policies  None without the option
    """

    caches: tuple[str, ...] | None
    policies: tuple[PolicyAtDepth, ...] | None
    vs: str | None
    launches: int
    pause: float
    cpu_time: bool
    keep: str | None

    @property
    def clock(self) -> str:
        return "cpu" if self.cpu_time else "wall"


OPTIONS = (
    cache_option(several=True),
    policy_option(several=True),
    click.option(
        "--vs", type=click.Choice(["llama.cpp"]), help="Run the same GGUF file through this program, with kv-f16."
    ),
    click.option(
        "--launches",
        type=click.IntRange(1, MAX_LAUNCHES),
        default=1,
        show_default=True,
        help="Number of processes per model; the intervals then include the spread between processes.",
    ),
    click.option(
        "--pause", type=FiniteRange(min=0), default=10, show_default=True, help="Seconds before each further launch."
    ),
    cpu_time_option,
    click.option("--keep", type=KeepPath(), help="Append the measurements of --vs as records to this file or folder."),
)


@click.command(
    "race",
    cls=Command,
    sections={
        "Rivals": ("recipe", "cache", "policy", "vs", "launches", "pause"),
        "Speed": ("pp", "tg", "depth", "batch", "repetitions", "precision", "budget"),
    },
    examples=(
        "qbench race ref:llama --recipe q4_0 --recipe q8_0 -p 256 -n 64",
        "qbench race model.gguf --kv kv-f16 --policy full,sinks:4+252 -d 512",
    ),
)
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, is_eager=True)
@click.option("--recipe", "recipes", multiple=True, help="Recipe of the models; may be given several times.")
@partial(with_options, "rivals", Rivals, OPTIONS)
@speed_options
@json_option
@run_options(*ATTENDS, "device", "memory", "expert_placement")
def command(models, recipes, work: SpeedOptions, rivals: Rivals, as_json, options: RunOptions) -> None:
    """Speeds of several rivals in turn, and the ratio of each to the first, with its interval.

    Rivals are several models or --recipe values, each in a process of its own; several --cache or --policy values of
    one model; --launches of one model; or one GGUF file in qbench and in --vs. Processes of the same code differ by a
    few percent, which only --launches puts into the intervals. --cache and --policy give a table of all combinations
    that are possible; a policy with a depth, as full@1024, is measured at that depth only.
    """
    kind = kind_of(models, recipes, rivals)
    check_taken(kind, rivals, options)
    if kind == CACHES:
        check_device(options.device, options.compute)
    cases = work.cases(models)
    options = replace(options, recipe=recipes[0] if len(recipes) == 1 else None, threads=work.counts[0])
    if kind == PEER:
        check_comparison(models, recipes, work)
        print_comparison(models[0], cases, options, rivals, as_json)
    elif kind == CACHES:
        entries = entries_of(rivals.caches or (), rivals.policies or (), cases)
        print_caches(models[0], entries, options, work.counts, as_json)
    else:
        print_side_by_side(models, recipes, cases, options, work.counts, rivals, as_json)


def kind_of(models: Sequence[str], recipes: Sequence[str], rivals: Rivals) -> str:
    """The kind of the race. raises UsageError for only one contender"""
    if rivals.vs is not None:
        return PEER
    if len(models) > 1 or len(recipes) > 1:
        return MODELS
    if max(len(rivals.caches or ()), len(rivals.policies or ())) > 1:
        return CACHES
    if rivals.launches > 1:
        return LAUNCHES
    raise click.UsageError(
        "a race needs a second MODEL, --recipe, --cache or --policy, or --launches or --vs; `qbench bench MODEL` "
        "measures one"
    )


def check_taken(kind: str, rivals: Rivals, options: RunOptions) -> None:
    """raises UsageError for an option that this kind of race does not take"""
    given = {
        "--cache and --policy": bool(rivals.caches or rivals.policies),
        "--device": options.device != CPU,
        "--memory": options.memory_bytes is not None,
        "--launches": rivals.launches > 1,
        "--cpu-time": rivals.cpu_time,
        "--keep": rivals.keep is not None,
    }
    for option, kinds in TAKEN_BY.items():
        if given[option] and kind not in kinds:
            raise click.UsageError(f"{option}: for a race of {' or '.join(kinds)}; this is one of {kind}")


def check_comparison(models: Sequence[str], recipes: Sequence[str], work: SpeedOptions) -> None:
    """raises UsageError for anything but one file, one number of threads and one sequence"""
    if recipes:
        raise click.UsageError(f"--vs takes a file as it is: write it with `qbench quantize --recipe {recipes[0]}`")
    if len(models) > 1 or len(work.counts) > 1 or work.batches != (1,):
        raise click.UsageError("--vs takes one file, one number of threads, and a batch of 1")


def print_side_by_side(
    models: Sequence[str],
    recipes: Sequence[str],
    cases: list[SpeedWork],
    options: RunOptions,
    threads: Sequence[int | None],
    rivals: Rivals,
    as_json: bool,
) -> None:
    """One object, or one block of lines, for each model of each case."""
    from qbench.speed.launches import bench_launches
    from qbench.speed.side_by_side import bench_side_by_side, contenders

    sides = contenders(models, recipes)
    with progress_bar(f"race {' '.join(one.spec for one in sides)}") as update:
        measured = bench_side_by_side
        if rivals.launches > 1:
            measured = partial(bench_launches, launches=rivals.launches, pause_s=rivals.pause)
        found = measured(sides, cases, options, threads=threads, clock=rivals.clock, progress=update)
        for number, row in enumerate(row for rows in found for row in rows):
            print_row(row, as_json, number)


def print_comparison(model: str, cases: list[SpeedWork], options: RunOptions, rivals: Rivals, as_json: bool) -> None:
    """One object, or one block of lines, for each case; a record of each with --keep."""
    from qbench.versus.compare import CASE_KEYS, compare

    busy = busy_share()
    with progress_bar(f"race {model} --vs {rivals.vs}") as update:
        measured = compare(model, cases, options, clock=rivals.clock, progress=update)
        rows = [replace(row, busy_before=busy).to_json() for row in measured]
    print_warning(busy_warning(busy))
    without = [row for row in rows if row["pp"] and row["roofline"]["ours"]["pp"] is None]
    print_warning(unmeasured_warning(without[0]["threads"]) if without else None)
    about = {"kind": "versus", "peer": rivals.vs}
    for row in rows:
        if rivals.keep is not None:
            keep_row(rivals.keep, row, about, CASE_KEYS)
        if as_json:
            print_json(row)
        else:
            print_pairs(readable_comparison(VersusCase.from_json(about | row), VersusMetrics.from_json(row)))
