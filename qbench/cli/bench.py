"""`qbench bench MODEL...`: tokens per second, share of the roofline, memory; of several in turn, and their ratios."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import click

from qbench.cli.bench_breakdown import print_breakdown
from qbench.cli.bench_caches import not_interleaved_line, print_caches
from qbench.cli.bench_lines import lacks_peak, others_share, readable, readable_comparison
from qbench.cli.cache_options import (
    attention_option,
    kv_option,
    kv_tier_options,
    prefill_chunk_option,
    prefill_option,
)
from qbench.cli.count_option import count_option
from qbench.cli.finite_range import FiniteRange
from qbench.cli.help import Command
from qbench.cli.int_list import IntList
from qbench.cli.keep_path import KeepPath
from qbench.cli.memory_size import limit_option
from qbench.cli.output import (
    budget_option,
    cpu_time_option,
    device_option,
    json_option,
    print_json,
    print_pairs,
    print_result,
    print_warning,
)
from qbench.cli.percentage import Percentage
from qbench.cli.policy_depths import entries_of, lineup_options
from qbench.cli.progress import progress_bar
from qbench.cli.rank_lines import print_ranks
from qbench.cli.rank_options import RANK_FIELDS, bench_rank_options
from qbench.cli.run_options import with_run_options
from qbench.measure.host.conditions import busy_share, busy_warning
from qbench.measure.launch import MAX_LAUNCHES
from qbench.measure.metrics import Metrics
from qbench.measure.records.kept_kinds import VersusCase, VersusMetrics
from qbench.measure.records.kept_row import keep_row
from qbench.options.choices import CPU, MAX_THREADS, check_device
from qbench.options.run_options import RunOptions
from qbench.speed.peaks import unmeasured_warning
from qbench.speed.speed_case import SpeedCase, breakdown_depth, fitting_sizes
from quant.present import present

if TYPE_CHECKING:
    from qbench.speed.entry import Entry
    from qbench.speed.side_by_side import Contender

LEAST_REPETITIONS = 6  # the smallest number that gives an interval of a median
PRECISION = 0.02  # narrow enough to show a regression of 5 %


@dataclass(frozen=True, slots=True)
class Launches:
    """count: of the processes per model; pause_s: before each after the first"""

    count: int
    pause_s: float


@click.command("bench", cls=Command)
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, is_eager=True)
@click.option(
    "--recipe",
    "recipes",
    multiple=True,
    help="Quantize MODEL by this recipe while it loads; give it once, or once per model.",
)
@count_option("-p", "--pp", least=0, help="Number of prompt tokens  [default: 512, or fewer in a short context]")
@count_option("-n", "--tg", least=0, help="Number of tokens to decode  [default: 128, or fewer in a short context]")
@click.option(
    "-d",
    "--depth",
    "depths",
    type=IntList(0),
    default="0",
    show_default=True,
    help="Number of tokens in the cache before each phase.",
)
@click.option(
    "-b", "--batch", "batches", type=IntList(1), default="1", show_default=True, help="Number of sequences at once."
)
@count_option("-r", "--repetitions", help="Number of timed repetitions; the minimum if --precision is given.")
@click.option(
    "--precision",
    type=Percentage(),
    help="Repeat until every 95 % interval is within this share of its value  [default: 2%, without -r]",
)
@budget_option(30)
@click.option(
    "--threads", type=IntList(1, MAX_THREADS), help="Number of threads, or several numbers  [default: all cores]"
)
@click.option(
    "--vs", type=click.Choice(["llama.cpp"]), help="Run the same GGUF file through this program in turn, with kv-f16."
)
@cpu_time_option
@click.option(
    "--breakdown", is_flag=True, help="Print where the time of a decode step goes, by part, and measure nothing else."
)
@click.option(
    "--launches",
    type=click.IntRange(1, MAX_LAUNCHES),
    default=1,
    show_default=True,
    help="Number of processes per model; the intervals then include the spread between processes.",
)
@click.option(
    "--pause",
    type=FiniteRange(min=0),
    default=10,
    show_default=True,
    help="Seconds before each further launch.",
)
@click.option("--keep", type=KeepPath(), help="Append the measurements of --vs as records to this file or folder.")
@kv_option
@lineup_options
@prefill_option
@prefill_chunk_option
@attention_option
@kv_tier_options
@device_option
@limit_option
@bench_rank_options
@json_option
@with_run_options(
    "kv", "device", "prefill", "prefill_chunk", "attention", "kv_ram", "kv_disk", "memory", "expert_placement",
    *RANK_FIELDS,
)  # fmt: skip
def command(
    models, recipes, pp, tg, depths, batches, threads, vs, cpu_time, breakdown, launches, pause, keep, layouts,
    policies, as_json, options: RunOptions, **until,
) -> None:  # fmt: skip
    """Speed and memory of MODEL: prefill (pp) and decode (tg) as llama-bench defines them.

    Several depths, batches, --cache and --policy of one model take turns, and so do several models, each in a process
    of its own; the output has the ratio of each to the first, with its interval. Numbers of threads, as in 1,2, are
    measured one after the other. Processes of the same code differ by a few percent, which only --launches puts into
    the intervals. --cache or --policy give a table of all combinations that are possible; a policy with a depth, as
    full@1024, is measured at that depth alone.
    """
    from qbench.sources import open_source
    from qbench.speed.side_by_side import contenders
    from quant.models import ModelConfig

    several_ranks = options.layout.num_ranks > 1
    if several_ranks and until["precision"] is None:
        until["repetitions"] = until["repetitions"] or LEAST_REPETITIONS  # every rank stops after as many
    effort = how_long(**until)
    alone = vs is None and len(models) == 1 and len(recipes) <= 1
    if alone:
        check_device(options.device, options.compute)
    if pp is None or tg is None:
        shortest = min(ModelConfig.of(open_source(model)).max_positions for model in models)
        pp, tg = fitting_sizes(pp, tg, breakdown_depth(max(depths)) if breakdown else max(depths), shortest)
    cases = [SpeedCase(pp, tg, depth, batch=batch, **effort) for batch in batches for depth in depths]
    clock, counts = "cpu" if cpu_time else "wall", threads or (None,)
    recipe = recipes[0] if len(recipes) == 1 else None
    options = replace(options, recipe=recipe, threads=counts[0])
    if breakdown:
        check_breakdown(models, cases, counts, options, other=bool(vs or keep or layouts or policies) or launches > 1)
        return print_breakdown(models[0], cases[0], options, clock, as_json)
    if (keep is not None and vs is None) or (cpu_time and alone):
        raise click.UsageError(
            "--keep is for what --vs measures, and --cpu-time for that, for several models and for --breakdown"
        )
    of_caches = bool(layouts or policies)
    if options.device != CPU and not alone:
        raise click.UsageError(f"--device {options.device} is for one model, and not for --vs")
    if options.memory_bytes is not None and not alone:
        raise click.UsageError("--memory is for one model, and not for --vs")
    if of_caches and not alone:
        raise click.UsageError("--cache and --policy are for one model, and not for --vs")
    plain = vs is None and not of_caches and options.device == CPU and options.memory_bytes is None
    if launches > 1 and not plain:
        raise click.UsageError("--launches is for models on the CPU, and not for --vs, --cache, --policy or --memory")
    if several_ranks and (not alone or of_caches or launches > 1 or len(counts) > 1 or effort["precision"]):
        raise click.UsageError(
            "--tp, --stages, --ep and --sp are for one model and one number of threads, with -r, and not for --vs, "
            "--cache, --policy, --launches or --precision"
        )
    if several_ranks:
        print_ranks(models[0], cases, options, as_json)
    elif vs is not None:
        check_comparison(vs, models, recipes, batches, counts)
        print_comparison(models[0], cases, options, clock, keep, as_json)
    elif of_caches:
        print_caches(models[0], entries_of(layouts or (), policies or (), cases), options, counts, as_json)
    elif alone and launches == 1:
        bench_and_report(models[0], entries_of((), (), cases), options, counts, as_json)
    else:
        spread = Launches(launches, pause)
        print_side_by_side(contenders(models, recipes), cases, options, counts, clock, spread, as_json)


def how_long(repetitions: int | None, precision: float | None, budget: float) -> dict:
    """The fields of SpeedCase. Who gives repetitions alone wants just those."""
    if precision is None and repetitions is None:
        precision = PRECISION
    return {
        "repetitions": repetitions or LEAST_REPETITIONS,
        "precision": precision,
        "budget_s": None if precision is None else budget,
    }


def check_comparison(vs: str, models: tuple, recipes: tuple, batches: tuple, threads: tuple) -> None:
    if recipes:
        raise click.UsageError(
            f"--vs {vs} takes a file as it is: write it with `qbench quantize --recipe {recipes[0]}`"
        )
    if len(models) > 1 or len(threads) > 1 or batches != (1,):
        raise click.UsageError(f"--vs {vs} takes one file, one number of threads, and a batch of 1")


def check_breakdown(
    models: tuple, cases: Sequence[SpeedCase], threads: tuple, options: RunOptions, *, other: bool
) -> None:
    """raises click.UsageError for more than one sequence of one model on the CPU, held in memory"""
    if len(models) > 1 or len(cases) > 1 or len(threads) > 1 or cases[0].batch > 1 or not cases[0].tg:
        raise click.UsageError(
            "--breakdown takes one model, depth and number of threads, a batch of 1, and -n 1 or more"
        )
    if other or options.device != CPU or options.memory_bytes is not None or options.layout.num_ranks > 1:
        raise click.UsageError(
            "--breakdown is for one rank on the CPU; not for --vs, --keep, --cache, --policy, --launches or --memory"
        )


def bench_and_report(
    model: str, entries: Sequence["Entry"], options: RunOptions, threads: Sequence[int | None], as_json: bool
) -> None:
    """One object, or one block of lines, for each case."""
    from qbench.speed.lineup import bench_lineup

    with progress_bar(f"bench {model}") as update:
        for number, row in enumerate(bench_lineup(model, entries, options, threads=threads, progress=update)):
            if not number:
                print_warning(not_interleaved_line(row))
            print_row(row, as_json, number)


def print_side_by_side(
    sides: Sequence["Contender"],
    cases: list[SpeedCase],
    options: RunOptions,
    threads: Sequence[int | None],
    clock: str,
    launches: Launches,
    as_json: bool,
) -> None:
    """One object, or one block of lines, for each model of each case."""
    from qbench.speed.launches import bench_launches
    from qbench.speed.side_by_side import bench_side_by_side

    with progress_bar(f"bench {' '.join(one.spec for one in sides)}") as update:
        bench = bench_side_by_side
        if launches.count > 1:
            bench = partial(bench_launches, launches=launches.count, pause_s=launches.pause_s)
        measured = bench(sides, cases, options, threads=threads, clock=clock, progress=update)
        rows = (row for rows in measured for row in rows)
        for number, row in enumerate(rows):
            print_row(row, as_json, number)


def print_row(row: Metrics, as_json: bool, number: int) -> None:
    print_result(row, readable, as_json, number)
    if not as_json:
        print_warning(busy_warning(others_share(row)))
        print_warning(unmeasured_warning(present(present(row.facts).threads)) if lacks_peak(row) else None)


def print_comparison(
    model: str, cases: list[SpeedCase], options: RunOptions, clock: str, keep: str | None, as_json: bool
) -> None:
    from qbench.versus.compare import CASE_KEYS, compare

    busy = busy_share()
    with progress_bar(f"bench {model} --vs llama.cpp") as update:
        measured = compare(model, cases, options, clock=clock, progress=update)
        rows = [replace(row, busy_before=busy).to_json() for row in measured]
    print_warning(busy_warning(busy))
    without = [row for row in rows if row["pp"] and row["roofline"]["ours"]["pp"] is None]
    print_warning(unmeasured_warning(without[0]["threads"]) if without else None)
    about = {"kind": "versus", "peer": "llama.cpp"}
    for row in rows:
        if keep is not None:
            keep_row(keep, row, about, CASE_KEYS)
        if as_json:
            print_json(row)
        else:
            print_pairs(readable_comparison(VersusCase.from_json(about | row), VersusMetrics.from_json(row)))
