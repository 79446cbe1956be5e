"""The keywords of a function that say how the model runs: one for each axis, by the rows of `qbench.run.axes`."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, cleandoc, signature
from typing import Any, TypeVar, get_type_hints

from qbench.run.axes import AXES, RANKS, Axis
from qbench.run.options import DEFAULTS, RunOptions
from qbench.sources import open_source
from qbench.words.written import parse_bytes, parse_share
from quant.present import present

R = TypeVar("R")
SIZES = ("kv_ram", "kv_disk", "memory")  # axes of bytes, which may be text as on the command line
# Parameter -> its axis.
TAKEN = {axis.option.parameter: axis for axis in AXES if axis.option is not None and axis.option.group != RANKS}
WIDTH = max(map(len, TAKEN)) + 2


def with_run_arguments(function: Callable[..., R]) -> Callable[..., R]:
    """The function with a keyword for each axis; it gets them as one keyword, `options`, a `RunOptions`.

    The signature and the docstring have them, too. raises InputError for values that no model can have
    """
    own = signature(function)
    hints = get_type_hints(RunOptions)
    kept = [one for one in own.parameters.values() if one.name != "options"]
    added = [
        Parameter(
            name, Parameter.KEYWORD_ONLY, default=getattr(DEFAULTS, axis.option_field), annotation=_hint(axis, hints)
        )
        for name, axis in TAKEN.items()
    ]

    @wraps(function)
    def wrapped(*arguments: Any, **given: Any) -> R:
        model = arguments[0] if arguments else given.get("model")
        options = {
            axis.option_field: _value(axis, given.pop(name), model) for name, axis in TAKEN.items() if name in given
        }
        return function(*arguments, options=RunOptions(**options), **given)

    wrapped.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    lines = [f"{name:{WIDTH}}{present(axis.option).help}" for name, axis in TAKEN.items()]
    wrapped.__doc__ = "\n".join([cleandoc(function.__doc__ or ""), "", *lines])
    return wrapped


def _hint(axis: Axis, hints: dict[str, Any]) -> Any:
    hint = hints[axis.option_field]
    return hint | str if axis.name in SIZES else hint


def _value(axis: Axis, given: Any, model: Any) -> Any:
    """Bytes of a text; a share of --memory is of the bytes of the model's weights."""
    if axis.name not in SIZES or not isinstance(given, str):
        return given
    share = parse_share(given) if axis.name != "kv_disk" else None
    if share is None:
        return parse_bytes(given)
    if axis.name == "kv_ram":
        return share
    return int(share * sum(tensor.size_bytes for tensor in open_source(str(model)).tensors.values()))
