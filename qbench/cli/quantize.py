"""`qbench quantize MODEL --recipe R -o OUT`: write a model as one recipe says."""

from dataclasses import dataclass

import click

from qbench.calibration.options import CalibrationOptions
from qbench.cli.byte_count import BYTE_COUNT
from qbench.cli.calibration import calibration_options
from qbench.cli.output import json_option, print_json, readable_bytes, threads_option
from qbench.cli.progress import progress_bar
from qbench.measure.host.machine import available_cores
from quant.calibration.coverage import few_tokens_warning
from quant.errors import InputError
from quant.sizes import size_summary


@click.command("quantize")
@click.argument("model")
@click.option("--recipe", "recipe_name", required=True, help="A recipe's name, or a YAML file of rules.")
@click.option("-o", "--output", type=click.Path(), help="A .gguf file or a directory, as the recipe's container says.")
@click.option("--max-shard-size", type=BYTE_COUNT, help="Shards of at most so many bytes of tensors (GGUF), e.g. 2G.")
@click.option("--best", is_flag=True, help="Search longer for each tensor's codes.")
@click.option("--resume", is_flag=True, help="Continue a run that was killed.")
@click.option("--plan", is_flag=True, help="Print what each tensor becomes, and write nothing.")
@calibration_options
@threads_option
@json_option
def command(model, recipe_name, output, max_shard_size, best, resume, plan, calibration, threads, as_json) -> None:
    """Write MODEL as one recipe says, with a manifest of what was done."""
    if not plan and not output:
        raise click.UsageError("quantize needs -o OUT, or --plan to see what each tensor becomes")
    from qbench.sources import open_source
    from quant.recipes import get_recipe

    recipe = get_recipe(recipe_name)
    recipe = recipe.with_options(effort="best") if best else recipe
    source = open_source(model)
    how = WriteOptions(calibration, max_shard_size, threads, resume)
    if plan:
        print_plan(source, recipe, as_json)
        print_forecast(source, recipe, how, as_json)
    else:
        print_written(source, recipe, output, how, as_json)
    warn_of_unread_text(source, recipe, calibration)
    warn_of_weights(source, recipe.plan(source))


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How an artifact is made; nothing here but the calibration changes its tensors' bytes."""

    calibration: CalibrationOptions
    max_shard_bytes: int | None
    threads: int | None
    resume: bool


def print_plan(source, recipe, as_json: bool) -> None:
    """One line a tensor: name, shape, the format it gets, by which method, and why."""
    from quant.quantize import method_name

    for name, planned in recipe.plan(source).items():
        shape, method = list(source.tensors[name].shape), method_name(name, source, recipe, planned)
        row = {"tensor": name, "shape": shape, "format": planned.format, "method": method, "reason": planned.reason}
        if as_json:
            print_json(row)
        else:
            size = "x".join(map(str, shape))
            click.echo(f"{name:<48} {size:>13}  {planned.format:<7} {method or '':<11} {planned.reason}")


def print_forecast(source, recipe, how: WriteOptions, as_json: bool) -> None:
    """What a recipe with calibration will take, from a probe of one layer; nothing for one without."""
    from qbench.calibration.forecast import forecast
    from qbench.runtime import set_threads
    from quant.quantize import needs_calibration

    if how.calibration.imatrix is not None or not needs_calibration(recipe, recipe.plan(source)):
        return
    threads = how.threads or available_cores()
    set_threads(threads)
    cost = forecast(source, recipe, how.calibration, threads)
    if as_json:
        print_json(cost)
    else:
        memory, disk = readable_bytes(cost["peak_rss_bytes"]), readable_bytes(cost["disk_bytes"])
        click.echo(f"takes about {cost['seconds']:.0f} s, {memory} of memory and {disk} of disk, by a probe of a layer")


def print_written(source, recipe, output: str, how: WriteOptions, as_json: bool) -> None:
    """Writes the artifact, then says where it is and what it takes."""
    from qbench.calibration.write import write_quantized
    from qbench.runtime import set_threads
    from qbench.sources import open_source
    from quant.artifacts import read_manifest
    from quant.methods.remarks import remark_lines

    refuse_own_files(source, recipe, output, how.max_shard_bytes)
    threads = how.threads or available_cores()
    set_threads(threads)
    with progress_bar(f"quantize {source.spec} as {recipe.name}") as update:
        path = write_quantized(
            source,
            output,
            recipe,
            how.calibration,
            threads=threads,
            resume=how.resume,
            progress=update,
            max_shard_bytes=how.max_shard_bytes,
        )
    calibration = (read_manifest(path) or {}).get("calibration") or {}
    warnings = [few_tokens_warning(calibration.get("experts")), *remark_lines(calibration.get("remarks") or {})]
    for warning in filter(None, warnings):
        click.echo(f"warning: {warning}", err=True)
    weights = size_summary(open_source(str(path)).tensors)
    result = {"model": source.spec, "recipe": recipe.name, "artifact": str(path), **weights}
    if as_json:
        print_json(result)
    else:
        size, bits = readable_bytes(weights["size_bytes"]), weights["bits_per_weight"]
        click.echo(f"{path}: {weights['num_weights']:,} weights, {size}, {bits:.3f} bits a weight")


def warn_of_unread_text(source, recipe, calibration: CalibrationOptions) -> None:
    """Says that --calibration is not looked at: it may stand there for other recipes of the same script."""
    from quant.quantize import needs_calibration

    if calibration.text is None:
        return
    if not needs_calibration(recipe, recipe.plan(source)):
        click.echo(f"warning: recipe {recipe.name} does not calibrate; --calibration is not read", err=True)
    elif calibration.imatrix is not None:
        click.echo("warning: --imatrix stands in for a calibration; --calibration is not read", err=True)


def warn_of_weights(source, plan) -> None:
    """Says what the name of the recipe does not: tensors in another format than its own, weights rounded once more."""
    from quant.quantize import fallbacks, rounded_again

    for (wanted, instead), count in fallbacks(plan).items():
        click.echo(f"warning: rows that are no multiple of a block of {wanted}: {count} x {instead} instead", err=True)
    if names := rounded_again(source, plan):
        was = source.tensors[names[0]].format
        click.echo(
            f"warning: {source.spec} is quantized already ({len(names)} tensors, {names[0]} in {was}); this rounds "
            "what was rounded; quantize the original for the quality that a recipe can have",
            err=True,
        )


def refuse_own_files(source, recipe, output: str, max_shard_bytes: int | None) -> None:
    """raises InputError where writing to `output` would replace the model itself, or one of its shards"""
    from quant.artifacts.write import artifact_path, replaced_files

    own = {getattr(source, "path", None), *getattr(source, "paths", ())} - {None}  # none: a model that no file holds
    for path in replaced_files(artifact_path(source, output, recipe), max_shard_bytes):
        if any(path.samefile(file) for file in own):
            raise InputError(f"{path} is the model itself, which would be lost; write to another name")
