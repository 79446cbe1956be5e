"""Measures a trained reference model's held-out skills: `python -m training.measure [DIR]`."""

import json
import os
from pathlib import Path

import click
from tokenizers import Tokenizer

from qbench.reference.long_tasks import report_of
from qbench.reference.registry import weights_dir
from qbench.reference.skills import QUICK, Sizes, render
from training.export import load


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


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), required=False)
@click.option("--quick", is_flag=True, help="Fewer items, and nothing written: seconds instead of a minute.")
def main(folder: Path | None, quick: bool) -> None:
    """Print the skills of the model in FOLDER (the embedded one if not given), and write them there to skills.json."""
    click.echo(render(measure(folder or weights_dir("llama"), QUICK if quick else Sizes())))


if __name__ == "__main__":
    main()
