"""`qbench kernels`: each kernel's speed at the shapes of real models, next to other libraries."""

from pathlib import Path

import click

from qbench.cli.help import Command
from qbench.cli.keep_path import KeepPath
from qbench.cli.output import cpu_time_option, json_option, print_json, print_warning
from qbench.cli.progress import progress_bar
from qbench.cli.run_options import axis_option
from qbench.cli.types import IntList, only_option
from qbench.gate.options import suite_file
from qbench.measure.host.conditions import busy_share, busy_warning
from qbench.measure.host.machine import available_cores
from qbench.measure.records.kept_row import keep_row
from qbench.run.choices import set_threads
from qbench.speed.peaks import unmeasured_warning
from quant.errors import InputError

MOST_TOKENS = 2**20  # of a call: at K = 8192 they are 32 GiB of float32
GPU_BUDGET_S = 480  # of the ten minutes of a run on a GPU; the rest is for the slowest problem and the start


@click.command(
    "kernels", cls=Command, examples=("qbench kernels --only q4_k --m 1,512", "qbench kernels --suite kernels")
)
@click.option("--suite", help="Suite of kernels, a file or a name under suites/, instead of the four options below.")
@only_option("a kernel", "Kernels whose name contains this, e.g. q4_k.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Kernels to time: cpu or cuda.",
)
@click.option(
    "--m",
    "tokens",
    type=IntList(1, MOST_TOKENS),
    default="1,4,16,64,512",
    show_default=True,
    help="Number of tokens per call.",
)
@cpu_time_option
@axis_option("threads")
@click.option("--keep", type=KeepPath(), help="Append the rows as records to this file or folder.")
@json_option
@click.pass_context
def command(ctx, suite, only, device, tokens, cpu_time, threads, keep, as_json) -> None:
    """Time, rate and share of the roofline of every kernel, next to other libraries that are installed.

    Contenders take turns; bandwidth and peaks are measured in the same run. Exit status 1 if a kernel of ours is wrong.
    On cuda every kernel is checked before any is timed, all inside ten minutes; --keep is then a folder.
    """
    if device == "cuda":
        return on_gpu(ctx, only, keep, as_json)
    from qbench.kernels.benchmark import OURS  # imports numpy
    from qbench.kernels.measure import CASE_KEYS

    asked = ([(only, tokens, ("*",))], (threads or available_cores(),), "cpu" if cpu_time else "wall")
    cases, counts, clock = asked if suite is None else of_suite(ctx, suite)
    busy, any_wrong, is_told = busy_share(), False, False
    with progress_bar("kernels") as update:
        for number, measured in enumerate(rows_of(cases, counts, busy, clock, update)):
            row = measured.to_json()
            if number == 0:
                print_warning(busy_warning(busy))
            if row["peak_ops_per_s"] is None and row["operations"] is not None and not is_told:
                is_told = True
                print_warning(unmeasured_warning(row["threads"]))
            any_wrong |= "wrong" in row["contenders"][OURS]
            if keep is not None:
                keep_row(keep, row, {"kind": "kernel"}, CASE_KEYS)
            print_json(row) if as_json else click.echo(line(row))
    if any_wrong:
        ctx.exit(1)


def on_gpu(ctx, only: str, keep: str | None, as_json: bool) -> None:
    """The work of `python -m gpu_kernels.measure`. raises UsageError for options that say how the CPU is timed"""
    from gpu_kernels.measurement import Measurement, WrongResults, append, known_ops, line

    refuse(ctx, ("suite", "tokens", "cpu_time", "threads"), "--device cuda times each kernel at its own sizes")
    try:
        run = Measurement(known_ops(only), GPU_BUDGET_S, tell=print_warning)
        for rows in run.rows():
            if keep is not None:
                append(Path(keep), rows)
            for row in rows:
                print_json(row) if as_json else click.echo(line(row))
        for told in run.epilogue():
            print_warning(told)
    except WrongResults as error:
        print_warning(str(error))
        ctx.exit(1)
    except (RuntimeError, ValueError) as error:  # no such op, no GPU, or no commit to name
        raise InputError(str(error)) from error


def refuse(ctx, names: tuple[str, ...], why: str) -> None:
    """raises UsageError if any of these options was given"""
    options = {parameter.name: parameter.opts[0] for parameter in ctx.command.params}
    given = [options[name] for name in names if ctx.get_parameter_source(name).name == "COMMANDLINE"]
    if given:
        raise click.UsageError(f"{why}; leave out {', '.join(given)}")


def of_suite(ctx, suite: str) -> tuple:
    """([(kernels, tokens, shapes)], numbers of threads, clock)

    raises   UsageError for options that the suite sets
    """
    from qbench.kernels.suite import load_kernel_suite

    refuse(ctx, ("only", "tokens", "cpu_time", "threads"), "--suite says what is timed")
    loaded = load_kernel_suite(suite_file(suite))
    return [(one.kernels, one.tokens, one.shapes) for one in loaded.cases], loaded.counts, loaded.clock


def rows_of(cases, counts, busy: float, clock: str, update):
    from qbench.kernels.run import run_kernels

    for threads in counts:
        set_threads(threads)
        for kernels, tokens, shapes in cases:
            yield from run_kernels(kernels, tokens, threads, busy, clock, update, shapes)


def line(row: dict) -> str:
    """Its name, our figures, then each peer's time and how many times as fast as it ours is."""
    tokens = "" if row["tokens"] is None else f"M={row['tokens']}"
    label = f"{row['op']:<18} {row['shape']:<11} {tokens:<6}"
    return "  ".join([label, *(contender(name, entry, row) for name, entry in row["contenders"].items())])


def rate(entry: dict, bound_by: str) -> str:
    """Share of the bound of the kernel."""
    return f"{entry['gb_s']:>6.1f} GB/s" if bound_by == "bytes" else f"{entry['tera_ops']:>6.3f} TOPS"


def contender(name: str, entry: dict, row: dict) -> str:
    from qbench.report.speeds import percent  # imports numpy

    if "ms" not in entry:
        return f"{name} " + (f"n/a ({entry['absent']})" if "absent" in entry else f"WRONG ({entry['wrong']})")
    if "ratio" in entry:
        return f"{name} {entry['ms']:.3f} ms ({entry['ratio']['median']:.2f}x)"
    if row["bound_by"] is None:
        return f"{entry['ms']:>8.3f} ms [{entry['how']}]"
    bound = row["unit"] if row["bound_by"] == "operations" else row["bound_by"]
    return (
        f"{entry['ms']:>8.3f} ms {rate(entry, row['bound_by'])} "
        f"{percent(entry['share'])} of the roofline ({bound}) [{entry['how']}]"
    )
