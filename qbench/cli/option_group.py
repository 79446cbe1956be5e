"""Options of a command that it gets as one object."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any


def with_options(name: str, group: type[Any], options: Sequence[Callable], command: Callable) -> Callable:
    """The command with these click options, which it gets as the keyword `name`.

    group   a dataclass with slots, one for each option
    """

    @wraps(command)
    def wrapped(**values):
        return command(**{name: group(**{slot: values.pop(slot) for slot in group.__slots__})}, **values)

    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped
