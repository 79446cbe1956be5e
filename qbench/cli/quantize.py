"""`qbench quantize MODEL --recipe R -o OUT`: write a model as one recipe says."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from qbench.cli.calibration import CALIBRATION, calibration_options
from qbench.cli.help import Command
from qbench.cli.output import echo, json_option, print_json, readable_bytes
from qbench.cli.progress import progress_bar
from qbench.cli.run_options import axis_option
from qbench.cli.types import BYTE_COUNT
from qbench.measure.host.machine import available_cores
from qbench.run.choices import set_threads
from qbench.run.work import CalibrationWork
from quant.errors import InputError

if TYPE_CHECKING:  # loaded when the command runs, not for its help
    from quant.job import QuantizationJob


@click.command(
    "quantize",
    cls=Command,
    sections={
        "Calibration": tuple(CALIBRATION),
        "Output": ("output", "max_shard_size", "best", "resume", "dry_run", "json"),
    },
    examples=(
        "qbench quantize ref:llama --recipe q4_k_m -o model.gguf",
        "qbench quantize ref:llama --recipe q4_k_m --dry-run",
    ),
)
@click.argument("model")
@click.option("--recipe", "recipe_name", help="A recipe's name, or a YAML file of rules.")
@click.option(
    "--target",
    help="Search for the best mix instead, as `qbench search MODEL --target SIZE`, which has more options.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="A .gguf file or a directory, as the recipe's container says  [default: the conventional name]",
)
@click.option("--max-shard-size", type=BYTE_COUNT, help="Largest size of a shard (GGUF), for example 2G.")
@click.option("--best", is_flag=True, help="Search longer for each tensor's codes.")
@click.option("--resume", is_flag=True, help="Continue a run that was killed.")
@click.option("--dry-run", is_flag=True, help="Print the format of each tensor, and write nothing.")
@calibration_options
@axis_option("threads")
@json_option
def command(
    model, recipe_name, target, output, max_shard_size, best, resume, dry_run, calibration, threads, as_json
) -> None:
    """Quantize MODEL by a recipe, or by the best mix for a target, and write it with a manifest."""
    from qbench.sources import open_source
    from quant.artifacts import make_artifact_job
    from quant.artifacts.output import default_output
    from quant.recipes import get_recipe  # imports the families of models

    if target is not None:
        refused = {"--recipe": recipe_name, "--max-shard-size": max_shard_size, "--best": best, "--resume": resume}
        refuse_options(refused | {"--dry-run": dry_run})
        search_instead(target, output)
        return
    if recipe_name is None:
        raise click.UsageError("give --recipe NAME, or --target SIZE to search for the best mix")
    source, recipe = open_source(model), get_recipe(recipe_name)
    recipe = recipe.with_options(effort="best") if best else recipe
    named = output or (None if dry_run else default_output(source, recipe))
    job = make_artifact_job(source, recipe, named, max_shard_size)
    refuse_own_files(job)
    if named != output:
        click.echo(f"no -o: writing to {named}", err=True)
    how = WriteOptions(calibration, threads, resume)
    if dry_run:
        print_formats(job, as_json)
        report_forecast(job, how, as_json)
    else:
        quantize_and_report(job, how, as_json)
    warn_of_unread_text(job, calibration)
    for warning in job.warnings():
        click.echo(f"warning: {warning}", err=True)


def refuse_options(values: Mapping[str, object]) -> None:
    """raises UsageError for an option that a search does not take. values: option -> its value"""
    for option, value in values.items():
        if value:
            raise click.UsageError(f"--target searches for the recipe itself and does not take {option}; drop one")


def search_instead(target: str, output: str | None) -> None:
    """Run `qbench search` with the values of this command line."""
    context = click.get_current_context()
    if output is None:
        raise click.UsageError("--target needs -o, a name like best.gguf, or a directory for compressed-tensors")
    search = importlib.import_module("qbench.cli.search").command  # by name, as `cli.main` imports commands
    given = {name: value for name, value in context.params.items() if name in {each.name for each in search.params}}
    context.invoke(search, **given)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a job is run; nothing here but the calibration changes its tensors' bytes."""

    calibration: CalibrationWork
    threads: int | None
    resume: bool


def print_formats(job: "QuantizationJob", as_json: bool) -> None:
    """One line per tensor: name, shape, the format it gets, by which method, and why."""
    for name, choice in job.choices.items():
        shape, method = list(job.source.tensors[name].shape), job.method_name(name)
        row = {"tensor": name, "shape": shape, "format": choice.format, "method": method, "reason": choice.reason}
        if as_json:
            print_json(row)
        else:
            size = "x".join(map(str, shape))
            echo(f"{name:<48} {size:>13}  {choice.format:<7} {method or '':<11} {choice.reason}")


def report_forecast(job: "QuantizationJob", how: WriteOptions, as_json: bool) -> None:
    """Costs from a probe of one layer; without calibration, time and size; without weights, the size."""
    from qbench.calibration.forecast import forecast, plain_seconds, tensor_sizes
    from qbench.sources.shape import PREFIX

    threads = how.threads or available_cores()
    set_threads(threads)
    work = f"probe of a layer of {job.source.spec} as {job.recipe.name}"
    if how.calibration.imatrix is not None or not job.needs_calibration:
        size = sum(tensor_sizes(job).values())
        is_timed = how.calibration.imatrix is None and not job.source.spec.startswith(PREFIX)
        seconds = None
        if is_timed:
            with progress_bar(work):
                seconds = plain_seconds(job, threads)
        if as_json and seconds is not None:
            print_json({"seconds": seconds, "artifact_bytes": size})
        elif not as_json:
            time = "" if seconds is None else f"takes about {max(1.0, seconds):.0f} s by a probe of a layer; "
            click.echo(f"{time}the artifact takes {readable_bytes(size)} of disk")
        return
    with progress_bar(work):
        cost = forecast(job, how.calibration, threads)
    if as_json:
        print_json(cost.to_json())
    else:
        memory, disk = readable_bytes(cost.peak_rss_bytes), readable_bytes(cost.disk_bytes)
        click.echo(
            f"takes about {cost.seconds:.0f} s, {memory} of memory and, while it runs, {disk} of disk, by a probe of a "
            f"layer; the artifact keeps {readable_bytes(cost.artifact_bytes)} of the disk"
        )


def quantize_and_report(job: "QuantizationJob", how: WriteOptions, as_json: bool) -> None:
    """Writes the artifact, then prints its path and size."""
    from qbench.calibration.run import Run
    from qbench.calibration.write import write_quantized
    from qbench.sources import open_source
    from quant.artifacts import read_manifest
    from quant.calibration.coverage import few_tokens_warning
    from quant.methods.base import remark_lines  # imports torch
    from quant.sizes import size_summary

    model, recipe = job.source.spec, job.recipe.name
    threads = how.threads or available_cores()
    set_threads(threads)
    with progress_bar(f"quantize {model} as {recipe}") as update:
        path = write_quantized(job, how.calibration, Run(threads, how.resume, update))
    if (manifest := read_manifest(path)) is not None and (calibrated := manifest.calibration) is not None:
        warnings = [few_tokens_warning(calibrated.experts), *remark_lines(calibrated.remarks)]
    else:
        warnings = []
    for warning in filter(None, warnings):
        click.echo(f"warning: {warning}", err=True)
    weights = size_summary(open_source(str(path)).tensors)
    result = {"model": model, "recipe": recipe, "artifact": str(path), **weights.to_json()}
    if as_json:
        print_json(result)
    else:
        size, bits = readable_bytes(weights.size_bytes), weights.bits_per_weight
        click.echo(f"{path}: {weights.num_weights:,} weights, {size}, {bits:.3f} bits per weight")


def warn_of_unread_text(job: "QuantizationJob", calibration: CalibrationWork) -> None:
    """Says that --calibration is not read: the same script may give it for other recipes."""
    if calibration.text is None:
        return
    if not job.needs_calibration:
        click.echo(f"warning: recipe {job.recipe.name} does not calibrate; --calibration is not read", err=True)
    elif calibration.imatrix is not None:
        click.echo("warning: --imatrix stands in for a calibration; --calibration is not read", err=True)


def refuse_own_files(job: "QuantizationJob") -> None:
    """raises InputError if writing the output would replace the model itself, or one of its shards"""
    from quant.artifacts.output import own_files, replaced_files

    own = own_files(job.original)
    for path in replaced_files(job.output) if job.output else ():
        if any(path.samefile(file) for file in own):
            raise InputError(f"{path} is the model itself, which would be lost; write to another name")
