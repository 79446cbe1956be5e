"""`qbench recipes`: the named recipes, filtered."""

import click

from qbench.cli.help import Command
from qbench.cli.output import aligned, json_option, print_json
from qbench.words.written import nearest

HEADINGS = ("recipe", "bits/weight", "method", "calibration", "container", "loaded by")


@click.command("recipes", cls=Command, examples=("qbench recipes", "qbench recipes --bits 4 --container gguf"))
@click.option("--bits", metavar="LOW[-HIGH]", help="Bits per weight of the main format, for example 4 or 3.5-4.5.")
@click.option("--container", help="gguf, safetensors, compressed-tensors, gptq or bitsandbytes.")
@click.option(
    "--calibration/--no-calibration",
    default=None,
    help="Only recipes that need a calibration text, or only the others.",
)
@json_option
def command(bits: str | None, container: str | None, calibration: bool | None, as_json: bool) -> None:
    """Named recipes: bits, method, calibration, and the programs that load the result."""
    from quant.recipes.listing import list_recipes
    from quant.recipes.presets import SIZES, with_groups

    low, high = (0.0, float("inf")) if bits is None else bits_range(bits)
    rows = list_recipes()
    containers = sorted({row.container for row in rows})
    if container is not None and container not in containers:
        known = ", ".join(containers)
        raise click.UsageError(
            f"unknown container {container!r}; expected one of {known}{nearest(container, containers)}"
        )
    found = [
        row
        for row in rows
        if low <= row.bits_per_weight <= high
        and container in (None, row.container)
        and calibration in (None, row.calibrated)
    ]
    if as_json:
        for row in found:
            print_json(row.to_json())
        return
    if not found:
        raise click.UsageError("no recipe is left; widen --bits, --container or --calibration")
    cells = [
        (
            row.recipe,
            f"{row.bits_per_weight:.4g}",
            row.method,
            "yes" if row.calibrated else "no",
            row.container,
            row.loaded_by,
        )
        for row in found
    ]
    click.echo("\n".join(aligned(HEADINGS, cells)))
    if any(with_groups(row.recipe) for row in found):
        click.echo(f"\nrtn, gptq and awq with g128 or g64 also with w2, w3, w4, w8 and g{', g'.join(SIZES)}: awq-w3g64")


def bits_range(text: str) -> tuple[float, float]:
    """ "3.5-4.5" -> (3.5, 4.5); "4" -> (4, 5), without 5 itself, so that it has all 4-bit formats."""
    low, dash, high = text.partition("-")
    try:
        first = float(low)
        return (first, float(high)) if dash else (first, first + 1 - 1e-9)
    except ValueError as error:
        message = f"got {text!r}, expected a number or LOW-HIGH, as in 3.5-4.5"
        raise click.BadParameter(message, param_hint="'--bits'") from error
