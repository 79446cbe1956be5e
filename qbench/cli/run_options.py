"""Collect the options of a command that say how the model runs."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from qbench.run_options import RunOptions

FIELDS = {
    "kv": "kv_format",
    "memory": "memory_bytes",
    "stages": "pp",
}  # parameter of a command -> field of RunOptions, if they differ


def with_run_options(*names: str) -> Callable:
    """A decorator: the command gets these parameters as one keyword, `options`; write it below the click options."""

    def decorator(command: Callable) -> Callable:
        @wraps(command)
        def wrapped(**values: Any) -> Any:
            options = RunOptions(**{FIELDS.get(name, name): values.pop(name) for name in names})
            return command(options=options, **values)

        return wrapped

    return decorator
