"""`qbench bench MODEL`: tokens per second, share of the roofline and memory of one model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from qbench.cli.bench_caches import not_interleaved_line, print_caches
from qbench.cli.bench_lines import print_row
from qbench.cli.help import Command
from qbench.cli.output import json_option, print_warning
from qbench.cli.policy_depths import PolicyAtDepth, cache_option, entries_of, policy_option
from qbench.cli.progress import progress_bar
from qbench.cli.rank_lines import print_ranks
from qbench.cli.rank_options import refuse_undivided
from qbench.cli.run_options import run_options
from qbench.cli.speed_options import ATTENDS, LEAST_REPETITIONS, SpeedOptions, speed_options
from qbench.run.choices import check_device
from qbench.run.options import RunOptions

if TYPE_CHECKING:
    from qbench.speed.entry import Entry


def single(ctx: click.Context, param: click.Parameter, values: Sequence[Any] | None) -> Any:
    """The only value of a parameter. raises UsageError with the command that takes several"""
    if values is None or len(values) < 2:
        return values[0] if values else None
    shown = [each.text if isinstance(each, PolicyAtDepth) else each for each in values]
    if isinstance(param, click.Argument):
        words = " ".join(shown)
    else:
        words = f"MODEL {' '.join(f'{param.opts[0]} {each}' for each in shown)}"
        if not param.multiple:
            words = f"MODEL {param.opts[0]} {','.join(shown)}"
    raise click.UsageError(f"bench measures one model with one cache; `qbench race {words}` compares several")


@click.command(
    "bench",
    cls=Command,
    sections={"Model": ("recipe",), "Speed": ("pp", "tg", "depth", "batch", "repetitions", "precision", "budget")},
    examples=(
        "qbench bench ref:llama --recipe q4_0 -p 256 -n 64",
        "qbench bench model.gguf --kv kv-f16 -d 0,512 -b 1,8",
    ),
)
@click.argument("model", metavar="MODEL", nargs=-1, required=True, is_eager=True, callback=single)
@click.option("--recipe", multiple=True, callback=single, help="Quantize MODEL by this recipe while it loads.")
@speed_options
@cache_option(callback=single)
@policy_option(callback=single)
@json_option
@run_options(*ATTENDS, "device", "memory", "expert_placement", "division", own=("recipe",))
def command(model, work: SpeedOptions, cache, policy, as_json, options: RunOptions) -> None:
    """Speed and memory of MODEL: prefill (pp) and decode (tg) as llama-bench defines them.

    Several depths and batches take turns; the output has the ratio of each to the first, with its interval. Numbers of
    threads, as in 1,2, are measured one after the other. `qbench race` compares models, caches, policies or processes,
    and `qbench breakdown` takes a decode step apart.
    """
    several_ranks, has_cache = options.layout.num_ranks > 1, bool(cache or policy)
    if several_ranks:
        work = for_ranks(work, has_cache)
    else:
        refuse_undivided()
    check_device(options.device, options.compute)
    cases, options = work.cases([model]), replace(options, threads=work.counts[0])
    if several_ranks:
        print_ranks(model, cases, options, as_json)
        return
    entries = entries_of((cache,) if cache else (), (policy,) if policy else (), cases)
    printed = print_caches if has_cache else bench_and_report
    printed(model, entries, options, work.counts, as_json)


def for_ranks(work: SpeedOptions, has_cache: bool) -> SpeedOptions:
    """The work of ranks, which all stop after the same number of repetitions.

    raises   UsageError for a cache, several numbers of threads, or a precision
    """
    if has_cache or len(work.counts) > 1 or work.precision is not None:
        raise click.UsageError(
            "--ranks is for one number of threads, with -r, and not for --cache, --policy or --precision"
        )
    return replace(work, repetitions=work.repetitions or LEAST_REPETITIONS)


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
