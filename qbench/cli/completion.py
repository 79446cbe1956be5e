"""`qbench completion SHELL`: the script that completes commands and options in a shell."""

import click
from click.shell_completion import get_completion_class

from qbench.cli.help import Command

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", cls=Command, examples=("qbench completion bash", "qbench completion zsh"))
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    For bash: qbench completion bash > ~/.qbench-completion, then source that file in ~/.bashrc.
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    click.echo(kind(ctx.find_root().command, {}, "qbench", "_QBENCH_COMPLETE").source())
