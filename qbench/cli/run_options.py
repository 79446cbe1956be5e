"""The options of a command that say how the model runs: one for each axis, by the rows of `qbench.run.axes`."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click

from qbench.cli.cache_options import Checked
from qbench.cli.memory_size import MEMORY_SIZE, SIZE_OR_SHARE, LimitSize
from qbench.cli.option_group import collected
from qbench.run.axes import AXES, AXIS, Axis
from qbench.run.choices import MAX_THREADS
from qbench.run.options import DEFAULTS, RunOptions
from qbench.run.rank_layout import RankProcesses, parse_ranks
from qbench.words.written import LARGEST
from quant.errors import InputError
from quant.present import present

NO_HELPS: Mapping[str, str] = MappingProxyType({})
PROCESSES = "qbench.ranks"  # in the context of a command: how the processes of its ranks run


def keep_ranks(ctx: click.Context, _option: click.Parameter, values: Sequence[str]) -> str | None:
    """The division that --ranks names, None for one rank; several options are one. The context keeps the processes."""
    if not values:
        return None
    try:
        layout, ctx.meta[PROCESSES] = parse_ranks(",".join(values))
    except InputError as error:
        raise click.BadParameter(str(error)) from error
    return None if layout.num_ranks == 1 else str(layout)


def asked_processes() -> RankProcesses:
    """How the processes of this command's ranks run."""
    return click.get_current_context().meta.get(PROCESSES, RankProcesses())


# Axis -> the type of its option, if its row does not say it.
TYPES: Mapping[str, click.ParamType] = {
    "recipe": click.STRING,
    "kv_format": click.STRING,
    "kv_ram": SIZE_OR_SHARE,
    "kv_disk": MEMORY_SIZE,
    "memory": LimitSize(),
    "threads": click.IntRange(1, MAX_THREADS),
    "division": click.STRING,
}


def type_of(axis: Axis) -> click.ParamType:
    if axis.name in TYPES:
        return TYPES[axis.name]
    if present(axis.option).choices:
        return click.Choice(present(axis.option).choices)
    if axis.kind is int:
        return click.IntRange(axis.least, LARGEST)
    return Checked(axis.name, present(axis.check))


def axis_option(name: str, **other: Any) -> Callable:
    """The click option of an axis, with the default of `RunOptions`; other: arguments that replace those of the row"""
    axis, option = AXIS[name], present(AXIS[name].option)
    default = getattr(DEFAULTS, axis.option_field)
    arguments: dict[str, Any] = {"type": type_of(axis), "help": option.help, "metavar": option.metavar}
    arguments |= {"multiple": True, "callback": keep_ranks} if name == "division" else {"default": default}
    return click.option(option.name, **{**arguments, "show_default": default is not None, **other})


def run_options(*wanted: str, own: Sequence[str] = (), helps: Mapping[str, str] = NO_HELPS) -> Callable:
    """A decorator: the command has the options of these axes, and gets them as one keyword, `options`.

    wanted  names of axes, or of groups of them
    own     axes whose options the command adds itself
    helps   axis -> its help in this command, if that of its row is about others
    """
    axes = [axis for axis in AXES if axis.option is not None and {axis.name, axis.option.group} & {*wanted, *own}]

    def decorator(command: Callable) -> Callable:
        parameters = {axis.option.parameter: axis.option_field for axis in axes if axis.option is not None}
        wrapped = collected("options", RunOptions, parameters, command)
        for axis in reversed(axes):
            if axis.name not in own:
                wrapped = axis_option(axis.name, **({"help": helps[axis.name]} if axis.name in helps else {}))(wrapped)
        return wrapped

    return decorator
