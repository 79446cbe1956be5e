"""`qbench bench --breakdown` and its table."""

from collections.abc import Mapping

import click

from qbench.cli.bench_lines import kernels_line
from qbench.cli.output import aligned, print_json, print_pairs
from qbench.cli.progress import progress_bar
from qbench.measure.breakdown import Breakdown
from qbench.options.run_options import RunOptions
from qbench.speed.speed_case import SpeedCase

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


def print_breakdown(model: str, case: SpeedCase, options: RunOptions, clock: str, as_json: bool) -> None:
    """One object, or the facts and a table of parts, the largest first."""
    from qbench.speed.breakdown import breakdown

    with progress_bar(f"bench {model} --breakdown") as update:
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
