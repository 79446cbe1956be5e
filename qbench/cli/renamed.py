"""Options and values of earlier versions: one line says what they are called now."""

import click

# An old option -> the new one, by command; "": of every command.
OPTIONS = {
    "": {"--products": "--compute", "--cache-kind": "--cache", "--kv-format": "--kv"},
    "recommend": {"--caches": "--kv"},
    "report": {"--caches": "--cache-table"},
    "mla": {"--plan": "--mode"},
    "sweep": {"--plan": "--dry-run"},
    "quantize": {"--plan": "--dry-run"},
}


def new_option(error: click.NoSuchOption) -> str | None:
    """The line for an option of an earlier version; None for another unknown option."""
    command = error.ctx.info_name if error.ctx else ""
    new = {**OPTIONS[""], **OPTIONS.get(command or "", {})}.get(error.option_name)
    return new and f"{error.option_name} is called {new} now"
