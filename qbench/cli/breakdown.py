"""`qbench breakdown MODEL`: where the time of a decode step goes, by part."""

from collections.abc import Mapping

import click

from qbench.cli.bench_lines import kernels_line
from qbench.cli.help import Command
from qbench.cli.output import aligned, cpu_time_option, json_option, print_json, print_pairs
from qbench.cli.progress import progress_bar
from qbench.cli.run_options import run_options
from qbench.cli.speed_options import ATTENDS, STEPS, shortest_context
from qbench.cli.types import count_option
from qbench.measure.breakdown import Breakdown
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork, breakdown_depth, fitting_sizes

ABOUT: Mapping[str, str] = {
    "products": "matrix products",
    "attention": "scores and sums over the KV cache, and new keys and values",
    "norms": "RMS norms, SiLU, gates",
    "rounding": "activations to the format that a product reads",
    "wake_ups": "threads that have not begun yet",
    "waits": "threads without a task while others work",
    "calls": "code of cpu_kernels between these",
    "python": "Python, and computations of torch",
    "sampling": "from logits to the next token",
}


@click.command(
    "breakdown",
    cls=Command,
    sections={"Model": ("recipe",), "Speed": ("tg", "depth")},
    examples=("qbench breakdown ref:llama --recipe q4_0 -n 64", "qbench breakdown model.gguf --cpu-time --threads 1"),
)
@click.argument("model")
@count_option("-n", "--tg", help=STEPS)
@count_option("-d", "--depth", least=0, default=0, help="Number of tokens in the cache before the first step.")
@cpu_time_option
@json_option
@run_options("recipe", *ATTENDS, "threads")
def command(model, tg, depth, cpu_time, as_json, options: RunOptions) -> None:
    """Where the time of a decode step of MODEL goes, by part: one sequence on the CPU.

    The slower half of the steps does not count. --cpu-time with --threads 1 counts processor time, for busy machines.
    """
    pp, tg = fitting_sizes(None, tg, breakdown_depth(depth), shortest_context([model]))
    print_breakdown(model, SpeedWork(pp, tg, depth), options, "cpu" if cpu_time else "wall", as_json)


def print_breakdown(model: str, case: SpeedWork, options: RunOptions, clock: str, as_json: bool) -> None:
    """One object, or the facts and a table of parts, the largest first."""
    from qbench.speed.breakdown import breakdown

    with progress_bar(f"breakdown {model}") as update:
        found = breakdown(model, case, options, clock=clock, progress=update)
    if as_json:
        print_json(found.to_json())
        return
    print_pairs(readable(found))
    click.echo()
    for line in table(found):
        click.echo(line)


def readable(found: Breakdown) -> dict[str, str | None]:
    facts, huge = found.facts, found.huge_page_share
    clock = " of CPU time" if found.clock == "cpu" else ""
    return {
        "model": f"{facts.model}" + (f" as {facts.recipe}" if facts.recipe else ""),
        "kernels": kernels_line(facts),
        "step": f"{1e3 * found.step_s:.3f} ms{clock}: mean of the faster {found.counted} of {found.steps} steps",
        "outside": f"{100 * found.outside_share:.1f} % of the step, outside products and attention",
        "memory": f"{found.page_faults:.1f} page faults per step"
        + ("" if huge is None else f", {100 * huge:.0f} % in huge pages"),
        "load": f"{found.load[0]:.1f} before, {found.load[1]:.1f} after",
    }


def table(found: Breakdown) -> list[str]:
    parts = sorted(found.parts.items(), key=lambda row: -row[1].seconds)
    rows = [(name, f"{1e6 * part.seconds:.1f}", f"{100 * part.share:.2f}", ABOUT[name]) for name, part in parts]
    numbers = aligned(("part", "us", "share %"), [row[:3] for row in rows])
    return [numbers[0], *(f"{line}  {row[3]}" for line, row in zip(numbers[1:], rows, strict=True))]
