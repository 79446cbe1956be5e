"""`qbench models`: models that need no file; `qbench models ref:NAME --skills` measures a reference model."""

from pathlib import Path

import click

from qbench.cli.help import Command
from qbench.cli.output import json_option, print_json
from qbench.cli.progress import progress_bar
from qbench.cli.run_options import axis_option
from qbench.run.options import RunOptions
from quant.errors import InputError
from quant.present import present


@click.command("models", cls=Command, examples=("qbench models", "qbench models ref:llama --skills"))
@click.argument("model", required=False)
@click.option("--skills", is_flag=True, help="Measure the skills of a reference model on its held-out sets.")
@click.option("--recipe", help="With --skills: quantize the model by this recipe first.")
@click.option("--into", type=click.Path(), help="With --skills: put the lines between a file's `skills` markers.")
@axis_option("threads")
@json_option
def command(model, skills: bool, recipe, into, threads, as_json: bool) -> None:
    """Models that need no file, or the skills of a reference model."""
    if skills != (model is not None):
        raise click.UsageError("a model is named together with --skills, as in: qbench models ref:llama --skills")
    if skills:
        print_skills(model, recipe, into, threads, as_json)
    else:
        print_models(as_json)


def print_models(as_json: bool) -> None:
    """One model a line: spec, parameters, description."""
    from qbench.sources import list_models

    for row in list_models():
        if as_json:
            print_json(row.to_json())
        else:
            params = f"{row.params / 1e6:,.1f} M" if row.params else ""
            click.echo(f"{row.spec:<20} {params:>10}  {row.description}")


def print_skills(spec: str, recipe: str | None, into: str | None, threads: int | None, as_json: bool) -> None:
    """Each skill of a reference model on items it never saw."""
    from qbench.calibration.open_subject import open_subject
    from qbench.reference.long_tasks import report_of
    from qbench.reference.skills import Sizes, render
    from qbench.report import replace_between_markers
    from qbench.runtime import load_model
    from qbench.runtime.token_kinds import json_tokenizer

    if not spec.startswith("ref:"):
        raise InputError(f"skills are those of the reference models, got {spec}; `qbench models` lists them")
    subject = open_subject(spec, RunOptions(recipe, threads=threads))
    with progress_bar(f"measure what {spec} can do"):
        model = load_model(subject.source, subject.options)
        tokenizer = json_tokenizer(present(subject.source.tokenizer))
        report = report_of(model, tokenizer, model.config.max_positions, Sizes())
    if into:
        replace_between_markers(Path(into), "skills", f"```\n{render(report)}\n```")
    elif as_json:
        print_json({"model": spec, "recipe": recipe, **report})
    else:
        click.echo(render(report))
