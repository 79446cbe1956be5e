"""`qbench search MODEL --target SIZE -o OUT`: the best mix of formats for a size or a speed."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qbench.cli.cache_options import CheckedList
from qbench.cli.calibration import CALIBRATION, calibration_options
from qbench.cli.help import Command
from qbench.cli.keep_path import KeepPath
from qbench.cli.output import json_option, print_json, readable_bytes
from qbench.cli.progress import progress_bar
from qbench.cli.run_options import axis_option
from qbench.cli.types import count_option
from qbench.measure.host.machine import available_cores
from qbench.measure.records.kept_row import keep_case
from qbench.run.cache_spec import FULL, check_policy
from qbench.run.choices import set_threads
from qbench.run.work import CalibrationWork
from qbench.search.target import WINDOWS, parse_target

if TYPE_CHECKING:  # loaded when the command runs, not for its help
    from qbench.search.kv_choice import KVWanted
    from qbench.search.search import SearchResult

AUTO = "auto"


def check_policy_or_auto(name: str) -> None:
    """raises InputError for an unknown policy"""
    if name != AUTO:
        check_policy(name)


OPTIONS = (
    click.option(
        "--target",
        required=True,
        help="Size of the file: 4.5bpw (bits per weight), 3.2GiB; or speed of decoding on this machine: 25tok/s; or "
        "both: 4.5bpw,25tok/s.",
    ),
    click.option(
        "--text",
        type=click.Path(path_type=Path),
        help="Held-out text that the mix is checked on  [default: a reference model's held-out text]",
    ),
    count_option("--windows", default=WINDOWS, help="Largest number of windows of the held-out text."),
    click.option("--exhaustive", is_flag=True, help="Check every fixed recipe on all windows, however clear it is."),
    click.option(
        "--ablation",
        is_flag=True,
        help="Check each step on the way to the mix, as --exhaustive: one format, fixed mixes, no GPTQ.",
    ),
    count_option("--context", "--ctx", help="Number of tokens of a KV cache that counts in the size."),
    click.option(
        "--kv",
        metavar="auto|FORMAT,...",
        help="KV formats to choose from, with --context  [default: auto, all that the model can take]",
    ),
    click.option(
        "--policy",
        "policies",
        type=CheckedList("auto|policy,...", check_policy_or_auto),
        help="Cache policies to choose from, with --context; auto: full, and two policies that evict, each with a half "
        "and a quarter of the tokens  [default: full]",
    ),
    count_option("--batch", help="Number of sequences in the KV cache, with --context  [default: 1]"),
    click.option("--keep", type=KeepPath(), help="Append the search as a record to this path."),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a search."""

    target: str
    text: Path | None = None
    windows: int = WINDOWS
    keep: str | None = None
    exhaustive: bool = False
    ablation: bool = False
    context: int | None = None
    kv: str | None = None
    batch: int | None = None
    policies: tuple[str, ...] | None = None

    @property
    def cache(self) -> "KVWanted | None":
        """The KV cache that counts in the size."""
        from qbench.search.kv_choice import KVWanted

        if self.context is None:
            return None
        return KVWanted(self.kv or AUTO, self.context, self.batch or 1, self.policies or (FULL,))


def wanted_options(command: Callable) -> Callable:
    """Adds the options; the command gets them as `wanted`, a Wanted."""

    @wraps(command)
    def wrapped(**values):
        wanted = Wanted(**{field.name: values.pop(field.name) for field in fields(Wanted)})
        for option, value in (("--kv", wanted.kv), ("--batch", wanted.batch), ("--policy", wanted.policies)):
            if wanted.context is None and value is not None:
                raise click.UsageError(
                    f"{option} goes with a KV cache of --context tokens; give --context too, or drop it"
                )
        return command(wanted=wanted, **values)

    for option in reversed(OPTIONS):
        wrapped = option(wrapped)
    return wrapped


@click.command(
    "search",
    cls=Command,
    sections={
        "Search": ("target", "text", "windows", "exhaustive", "ablation"),
        "KV cache in the size": ("context", "kv", "policy", "batch"),
        "Calibration": tuple(CALIBRATION),
    },
    examples=(
        "qbench search ref:llama --target 4.5bpw -o best.gguf",
        "qbench search ref:llama --target 2.5MB --context 1024 --kv auto -o small.gguf",
    ),
)
@click.argument("model")
@wanted_options
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    required=True,
    help="A name like best.gguf, or a directory for compressed-tensors; the recipe is written next to it.",
)
@calibration_options
@axis_option("threads")
@json_option
def command(
    model: str,
    wanted: Wanted,
    output: str,
    calibration: CalibrationWork,
    threads: int | None,
    as_json: bool,
) -> None:
    """Search for the mix of formats of MODEL that loses least within a size, or at a speed, and write it."""
    from qbench.search.plan import SearchOptions, plan_search
    from qbench.search.search import search
    from qbench.sources import open_source

    target, threads = parse_target(wanted.target), threads or available_cores()
    set_threads(threads)
    options = SearchOptions(
        target,
        Path(output),
        calibration,
        wanted.text,
        wanted.windows,
        threads,
        exhaustive=wanted.exhaustive or wanted.ablation,
        ablation=wanted.ablation,
        kv=wanted.cache,
    )
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
    width = max(20, *(len(each.label) for each in result.metrics.candidates))
    click.echo(f"{'recipe':<{width}} {'size':>10} {'predicted':>10} {'KLD':>10}  mix / recipe, 95 % interval")
    for each in result.metrics.candidates:
        size, ratio = readable_bytes(each.size_bytes), each.ratio
        said = "" if ratio is None else f"{ratio.value:.3f}"
        if ratio is not None and ratio.interval is not None:
            said += f" ({ratio.low:.3f} to {ratio.high:.3f})"
        click.echo(f"{each.label:<{width}} {size:>10} {each.predicted:>10.3e} {each.kld.value:>10.3e}  {said}".rstrip())
    if (cost := result.metrics.cost) is not None and cost.ratio is not None:
        click.echo(
            f"the search took {cost.ratio:.1f} times the processor time of one GPTQ run ({cost.gptq_seconds:.0f} s)"
        )
    if (speed := result.metrics.speed) is not None:
        click.echo(f"decodes {speed.tok_s:.1f} tokens per second here, predicted {speed.predicted_tok_s:.1f}")
    for each in result.metrics.candidates:
        if each.name == result.metrics.chosen and each.kv_bytes is not None:
            size, used = readable_bytes(each.kv_bytes), f"qbench generate {result.artifact} --kv {each.kv_format}"
            kept, used = ("", used) if each.policy is None else (f" {each.policy}", f"{used} --policy {each.policy}")
            click.echo(f"KV cache: {each.kv_format}{kept}, {size}; {used}")
    click.echo(f"{result.artifact}: {result.metrics.chosen}: {result.metrics.reason}")
    click.echo(f"{result.recipe_file}: the recipe; --recipe {result.recipe_file} makes the same file again")
