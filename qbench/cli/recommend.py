"""`qbench recommend MODEL --memory 6GiB`: which recipe and KV format to run within these limits."""

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qbench.cli.help import Command
from qbench.cli.memory_size import MEMORY_SIZE, enough
from qbench.cli.output import json_option, print_json, print_pairs, readable_bytes
from qbench.cli.progress import Update, progress_bar
from qbench.cli.run_options import axis_option
from qbench.cli.types import FiniteRange, count_option
from qbench.measure.metrics import Metrics
from qbench.run.case import Case
from qbench.run.work import SAMPLES, CalibrationWork
from qbench.words.written import names_in
from quant.kv_names import FLOAT32
from quant.present import present

if TYPE_CHECKING:
    from qbench.recommendation.answer import JudgedPoint, MeasuredPoint, MoreKld, Recommendation, RelaxedLimit

FOLDER = "runs/recommend"


@click.command(
    "recommend",
    cls=Command,
    sections={
        "Goal": ("memory", "tps", "context", "batch"),
        "Quality": ("text", "calibration", "samples", "windows", "exhaustive"),
    },
    examples=(
        "qbench recommend ref:llama --memory 300MiB",
        "qbench recommend ref:llama --memory 300MiB --tps 100 --context 512",
    ),
)
@click.argument("model")
@click.option(
    "--memory",
    type=MEMORY_SIZE,
    required=True,
    help="Memory of the whole process: Python and torch, weights, KV cache, workspace; for example 6GiB.",
)
@click.option(
    "--tps",
    type=FiniteRange(min=0, min_open=True),
    help="Smallest acceptable number of tokens per second, of all sequences together.",
)
@count_option("--context", "--ctx", help="Number of tokens per sequence  [default: the model's own, at most 8192]")
@count_option("--batch", default=1, help="Number of sequences at once.")
@click.option(
    "--recipes",
    help="Recipes to choose from, for example q8_0,gptq-w4g128  [default: ten that need no calibration; with "
    "--calibration four more that do]",
)
@click.option("--kv", metavar="FORMAT,...", help="KV formats to choose from, for example f32,kv-fp8  [default: five]")
@click.option("--text", type=click.Path(), help="Text for the KLD  [default: a reference model's held-out text]")
@click.option("--calibration", help="Text to calibrate on, which adds four calibrated GGUF recipes.")
@count_option("--samples", default=SAMPLES, help="Largest number of calibration windows.")
@count_option("--windows", default=24, help="Number of text windows to score.")
@click.option(
    "--exhaustive", is_flag=True, help="Measure every point that fits on all windows, not only those that may win."
)
@click.option(
    "-o", "--output", type=click.Path(), default=FOLDER, show_default=True, help="Folder of the measurements."
)
@axis_option("threads")
@json_option
def command(
    model,
    memory,
    tps,
    context,
    batch,
    recipes,
    kv,
    text,
    calibration,
    samples,
    windows,
    exhaustive,
    output,
    threads,
    as_json,
) -> None:
    """Find the recipe and KV format nearest to MODEL that fit the limits; exit status 1 if nothing fits."""
    from qbench.recommendation import Asked, recommend
    from qbench.recommendation.candidates import KV_CHOICES

    limits = {"context": context, "batch": batch, "tps": tps, "threads": threads}
    work = CalibrationWork(text=calibration, samples=samples) if calibration else None
    quality = {"text": text, "calibration": work, "windows": windows, "exhaustive": exhaustive}
    among = {"recipes": names(recipes), "kv_formats": names(kv) or KV_CHOICES}
    with progress_bar(f"recommend for {model}") as update:
        asked = Asked(model, memory, **limits, **quality, **among)
        result = recommend(asked, folder=Path(output), on_event=narrator(update))
    if as_json:
        print_json(result.to_json())
    else:
        print_answer(result)
    if result.answer is None:
        raise click.exceptions.Exit(1)


def narrator(update: Update) -> Callable:
    """Shows progress: a bar for the running point, and a line on stderr as each point ends."""

    def tell(event) -> None:
        if event.kind == "progress":
            done, total, what = event.progress or (0, 0, "")
            update(done, total, f"{place(event.point)}: {event.stage} {what}".rstrip())
        elif event.kind in ("done", "failed"):
            ending = figure(event.record.metrics) if event.kind == "done" else f"failed: {event.record.error}"
            click.echo(f"{place(event.point)}: {ending}  ({event.index + 1}/{event.total})", err=True)

    return tell


def figure(metrics: Metrics) -> str:
    if metrics.quality is not None and metrics.quality.mean_kld is not None:
        return f"kld {metrics.quality.mean_kld:.2e} nats"
    peak = readable_bytes(present(metrics.figure("peak_rss_bytes")))
    return f"{metrics.figure('tg_tok_s'):.2f} tok/s, peak {peak}"


def names(text: str | None) -> tuple[str, ...]:
    return tuple(filter(None, names_in(text or "")))


def print_answer(result: "Recommendation") -> None:
    if result.answer is None:
        found = result.relaxations
        click.echo("nothing meets this; what would do, the nearest first:" if found else "nothing of this can run")
        print_pairs({f"  {flag(one)}": point(one) for one in found})
    else:
        print_pairs({"recommended": point(result.answer), **about(result.answer)})
    for runner_up in result.runners_up:
        click.echo()
        print_pairs({"runner-up": point(runner_up), **about(runner_up, runner_up.kld_more)})
    if result.others:
        click.echo("\nothers")
    for _, group in groupby(result.others, key=lambda one: (one.recipe, one.outcome, one.why)):
        print_others(list(group))


def print_others(group: "list[JudgedPoint]") -> None:
    """Points of one recipe that have come to the same."""
    first, last = group[0], group[-1]
    if first.why is not None:
        kv_formats = ", ".join(one.kv_format for one in group)
        click.echo(f"  {first.recipe} with {kv_formats}: {first.outcome}: {first.why}")
    elif first.outcome == "memory" and len(group) > 1:
        click.echo(f"  {point(first)}: {miss(first)}; even with {last.kv_format} it {miss(last)}")
    else:
        for one in group:
            click.echo(f"  {point(one)}: {miss(one)}")


def about(one: "MeasuredPoint", more: "MoreKld | None" = None) -> dict[str, str | None]:
    """Figures of a point that fits."""
    low, high = one.kld_interval or (None, None)
    kld = f"{one.kld:.2e} nats" + ("" if low is None else f"  (95 % {low:.2e} to {high:.2e})")
    parts = {"runtime": one.runtime_bytes, "weights": one.resident_bytes, "KV cache": one.kv_bytes}
    parts |= {"workspace": one.workspace_bytes}
    memory = ", ".join(f"{name} {readable_bytes(size)}" for name, size in parts.items())
    peak = one.peak_rss_bytes
    lines: dict[str, str | None] = {
        "kld": kld,
        "memory": f"{readable_bytes(present(one.total_bytes))} predicted  ({memory})",
    }
    lines["peak"] = (
        "not measured (--tps does)"
        if peak is None
        else f"{readable_bytes(peak)} measured, libraries' shared pages left out"
    )
    if one.tps is not None:
        lines["speed"] = f"{one.tps:.2f} tok/s"
    if more is not None and more.low is not None and more.high is not None:
        sure = "surely more" if more.low > 0 else "not told apart on this text"
        lines["against it"] = f"kld {more.value:+.2e} nats  (95 % {more.low:+.2e} to {more.high:+.2e}; {sure})"
    return lines | ({"file": one.artifact} if one.artifact else {})


def place(point: Case) -> str:
    return named(present(point.recipe), present(point.kv_format))


def point(one: "JudgedPoint | RelaxedLimit") -> str:
    return named(one.recipe, one.kv_format)


def named(recipe: str, kv_format: str) -> str:
    return recipe if kv_format == FLOAT32 else f"{recipe} with {kv_format}"


def miss(one: "JudgedPoint") -> str:
    """Why a point is not the answer, in figures."""
    if one.outcome == "memory":
        return f"needs {readable_bytes(present(one.total_bytes))}, {readable_bytes(present(one.short))} too much"
    if one.outcome == "peak":
        return f"its process took {readable_bytes(present(one.short))} too much when it was timed"
    if one.outcome == "speed":
        kld = "" if one.kld is None else f"  (kld {one.kld:.2e})"
        return f"{one.tps:.2f} tok/s, {one.short:.2f} too few{kld}"
    return f"kld {one.kld:.2e}"


def flag(one: "RelaxedLimit") -> str:
    value = one.enough
    return {
        "memory_bytes": lambda: f"--memory {enough(int(value))}",
        "context": lambda: f"--context {value}",
        "batch": lambda: f"--batch {value}",
        "tps": lambda: f"--tps {int(value * 100) / 100:g}",
    }[one.limit]()
