"""`qbench policies`: the KV-cache policies that --policy takes."""

import click

from qbench.cli.help import Command
from qbench.cli.output import json_option, print_json


@click.command("policies", cls=Command, examples=("qbench policies", "qbench policies --json"))
@json_option
def command(as_json: bool) -> None:
    """KV-cache policies with their options and defaults."""
    from qbench.policies.registry import listed

    for row in listed():
        if as_json:
            print_json(row.to_json())
        else:
            click.echo(f"{row.usage}\n    {row.description}")
