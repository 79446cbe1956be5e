"""`qbench completion SHELL`: the script that completes commands and options in a shell."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    For bash: qbench completion bash > ~/.qbench-completion, then source that file in ~/.bashrc.
    """
    from qbench.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None, shell
    click.echo(kind(cli, {}, "qbench", "_QBENCH_COMPLETE").source())
