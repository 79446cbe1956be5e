"""Options of a command that it gets as one object."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any


def collected(name: str, group: type[Any], fields: Mapping[str, str], command: Callable) -> Callable:
    """The command, which gets the values of some parameters as the keyword `name`.

    group   a dataclass
    fields  parameter -> field of the dataclass
    """

    @wraps(command)
    def wrapped(**values):
        found = group(**{field: values.pop(parameter) for parameter, field in fields.items()})
        return command(**{name: found}, **values)

    return wrapped


def with_options(
    name: str, group: type[Any], options: Sequence[Callable], command: Callable, fields: Mapping[str, str] | None = None
) -> Callable:
    """The command with these click options, which it gets as `collected`.

    fields  None: one option for each slot of the group, with the same name
    """
    wrapped = collected(name, group, fields or {slot: slot for slot in group.__slots__}, command)
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped
