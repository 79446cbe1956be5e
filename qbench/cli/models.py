"""`qbench models`: what can be named without a file; `qbench models ref:NAME --skills` measures a reference model."""

import click

from qbench.cli.output import json_option, print_json


@click.command("models")
@click.argument("model", required=False)
@click.option("--skills", is_flag=True, help="Measure what a reference model has learnt, on its held-out sets.")
@json_option
def command(model: str | None, skills: bool, as_json: bool) -> None:
    """The models that can be named without a file."""
    if skills != (model is not None):
        raise click.UsageError("a model is named together with --skills, as in: qbench models ref:llama --skills")
    if skills:
        print_skills(model, as_json)
        return
    from qbench.sources import list_models

    for row in list_models():
        if as_json:
            print_json(row)
        else:
            params = f"{row['params'] / 1e6:,.1f} M" if row["params"] else ""
            click.echo(f"{row['spec']:<24} {params:>12}  {row['description']}")
