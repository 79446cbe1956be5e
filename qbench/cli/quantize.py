"""`qbench quantize MODEL --recipe R -o OUT`: write a model as one recipe says."""

from pathlib import Path

import click

from qbench.cli.output import json_option, print_json, readable_bytes
from qbench.cli.progress import progress_bar


@click.command("quantize")
@click.argument("model")
@click.option("--recipe", "recipe_name", required=True, help="A recipe's name, or a YAML file of rules.")
@click.option("-o", "--output", type=click.Path(), help="A .gguf file or a directory, as the recipe's container says.")
@click.option("--plan", is_flag=True, help="Print what each tensor becomes, and write nothing.")
@json_option
def command(model: str, recipe_name: str, output: str | None, plan: bool, as_json: bool) -> None:
    """Write MODEL as one recipe says, with a manifest of what was done."""
    if not plan and not output:
        raise click.UsageError("quantize needs -o OUT, or --plan to see what each tensor becomes")
    from qbench.sources import open_source
    from quant.recipes import get_recipe

    recipe = get_recipe(recipe_name)
    source = open_source(model)
    if plan:
        print_plan(source, recipe, as_json)
    else:
        print_written(source, recipe, output, as_json)


def print_plan(source, recipe, as_json: bool) -> None:
    """One line a tensor: name, shape, the format it gets, and why."""
    for name, planned in recipe.plan(source).items():
        shape = list(source.tensors[name].shape)
        row = {"tensor": name, "shape": shape, "format": planned.format, "reason": planned.reason}
        if as_json:
            print_json(row)
        else:
            click.echo(f"{name:<48} {'x'.join(map(str, shape)):>13}  {planned.format:<7} {planned.reason}")


def print_written(source, recipe, output: str, as_json: bool) -> None:
    """Writes the artifact, then says where it is and what it takes."""
    from qbench.sources import open_source
    from quant.artifacts import write_artifact
    from quant.sizes import size_summary

    refuse_own_file(source, Path(output))
    with progress_bar(f"quantize {source.spec} as {recipe.name}") as update:
        path = write_artifact(source, output, recipe=recipe, progress=update)
    weights = size_summary(open_source(str(path)).tensors)
    result = {"model": source.spec, "recipe": recipe.name, "artifact": str(path), **weights}
    if as_json:
        print_json(result)
    else:
        size, bits = readable_bytes(weights["size_bytes"]), weights["bits_per_weight"]
        click.echo(f"{path}: {weights['num_weights']:,} weights, {size}, {bits:.3f} bits a weight")


def refuse_own_file(source, output: Path) -> None:
    """raises InputError where `output` is the model itself: quantizing loses what it rounds away."""
    from quant.errors import InputError

    path = getattr(source, "path", None)  # None: a model that no file holds
    if path is not None and output.exists() and output.samefile(path):
        raise InputError(f"{output} is the model itself, which would be lost; write to another name")
