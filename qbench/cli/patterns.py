"""`qbench patterns`: the prefill patterns that --prefill takes."""

import click

from qbench.cli.help import Command
from qbench.cli.output import json_option, print_json


@click.command("patterns", cls=Command, examples=("qbench patterns", "qbench patterns --json"))
@json_option
def command(as_json: bool) -> None:
    """Prefill patterns with their options and defaults."""
    from qbench.prefill import pattern_entries

    for entry in pattern_entries():
        if as_json:
            print_json({"prefill": entry.name, "usage": entry.usage, "description": entry.description})
        else:
            click.echo(f"{entry.usage}\n    {entry.description}")
