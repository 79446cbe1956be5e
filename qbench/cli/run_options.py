"""Collect the options of a command that say how the model runs."""

from collections.abc import Callable
from functools import partial

from qbench.cli.option_group import collected
from qbench.options.run_options import RunOptions

FIELDS = {
    "kv": "kv_format",
    "memory": "memory_bytes",
    "stages": "pp",
}  # parameter of a command -> field of RunOptions, if they differ


def with_run_options(*names: str) -> Callable:
    """A decorator: the command gets these parameters as one keyword, `options`; write it below the click options."""
    return partial(collected, "options", RunOptions, {name: FIELDS.get(name, name) for name in names})
