"""Measures a trained reference model's held-out skills: `python -m qbench.reference.measure [DIR]`."""

import json
import os
from pathlib import Path

import click
from tokenizers import Tokenizer

from qbench.reference.export import load
from qbench.reference.long_tasks import LENGTHS, by_length
from qbench.reference.registry import weights_dir
from qbench.reference.skills import QUICK, Model, Sizes, render, skill_report

LONG_CONTEXT = max(LENGTHS)  # models with as many positions were trained on the long tasks


def measure(folder: Path, sizes: Sizes) -> dict:
    """The skill report of the weights in `folder`; one on all items is also written there as skills.json."""
    model, tokenizer = load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    context = json.loads((folder / "config.json").read_text(encoding="utf-8"))["max_position_embeddings"]
    report = report_of(model, tokenizer, context, sizes)
    if sizes != Sizes():
        return report
    temporary = folder / ".skills.json"
    temporary.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, folder / "skills.json")
    return report


def report_of(model: Model, tokenizer: Tokenizer, context: int, sizes: Sizes) -> dict:
    """The skill report of a model with so many positions; long tasks are part of it if it has LONG_CONTEXT."""
    report = skill_report(model, tokenizer, sizes)
    if context >= LONG_CONTEXT:
        report["by_length"] = by_length(model, tokenizer, LENGTHS, sizes.answers)
    return report


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), required=False)
@click.option("--quick", is_flag=True, help="Fewer items, and nothing written: seconds instead of a minute.")
def main(folder: Path | None, quick: bool) -> None:
    """Print the skills of the model in FOLDER (the embedded one if not given), and write them there to skills.json."""
    click.echo(render(measure(folder or weights_dir("llama"), QUICK if quick else Sizes())))


if __name__ == "__main__":
    main()
