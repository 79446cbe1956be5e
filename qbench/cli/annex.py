"""Commands outside the core: the annex of qbench registers by a table, other packages by an entry point.

The annex is the part of qbench that a newcomer may leave unread: search, break-even, kernels next to other libraries,
switch points, and ranks. Only `qbench.cli` imports it, as a contract in pyproject.toml says.
"""

import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

import click

ENTRY_POINTS = "qbench.commands"  # of other packages: "package:TABLE"; the package has a module for each command

# Group in `qbench --help` -> command -> its use. The module of a command has its name, and calls the command `command`.
Table = Mapping[str, Mapping[str, str]]

ANNEX: Table = {
    "Choose": {
        "search": "The mix of formats that loses least within a size or at a speed",
    },
    "Kernels and this machine": {
        "breakeven": "From which size on a faster way pays here, and off below it",
        "mla": "Time and memory of every way to attend by latent attention",
        "kernels": "Speed of each kernel, next to the roofline and other libraries",
        "tune": "Measure the switch points of the kernels on this machine",
        "selftest": "Check every kernel against its slow oracle on this machine",
    },
}
# Variable of the environment -> the launch of processes that have it. torchrun sets this one for each rank.
LAUNCHES = {"WORLD_SIZE": "qbench.cli.rank_options:RankLaunch"}


class Launch:
    """A command in one process. A launch of several processes replaces the parts that differ there."""

    is_silent = False  # True: another process prints in place of this one

    def check(self, arguments: list[str]) -> None:
        """raises InputError for a command that cannot run in these processes"""

    def fail(self, line: str, status: int) -> int:
        """Print the line of an error; returns the exit status, or ends the process with it."""
        print(f"qbench: {line}", file=sys.stderr)
        return status

    def end(self) -> None:
        """Called after a command without errors."""


def find_launch() -> Launch:
    """The launch of this process."""
    for variable, target in LAUNCHES.items():
        if variable in os.environ:
            return EntryPoint(variable, target, "").load()()
    return Launch()


def merged(*tables: Table) -> dict[str, dict[str, str]]:
    """One table; a group of several tables is where the first one has it."""
    groups: dict[str, dict[str, str]] = {}
    for table in tables:
        for title, commands in table.items():
            groups.setdefault(title, {}).update(commands)
    return groups


@dataclass(frozen=True, slots=True)
class OtherCommands:
    """Commands of other packages.

    modules  command -> its module
    refused  a line for each command that is left out, and for each table that cannot be read
    """

    table: dict[str, dict[str, str]]
    modules: dict[str, str]
    refused: list[str]

    def load(self, name: str) -> click.Command | None:
        """None for another command. raises ClickException for one that cannot be loaded"""
        if name not in self.modules:
            return None
        try:
            return import_module(self.modules[name]).command
        except Exception as error:
            raise click.ClickException(f"{self.modules[name]} has no command that can be loaded: {error}") from error


def other_commands(known: Collection[str]) -> OtherCommands:
    """Read the tables of installed packages, which takes 20 ms for 150 packages. known: names that are taken"""
    found = OtherCommands({}, {}, [])
    points = [(point.dist.name if point.dist else "", point) for point in entry_points(group=ENTRY_POINTS)]
    for package, point in sorted(points):
        try:
            rows = [(group, name, use) for group, its in point.load().items() for name, use in its.items()]
        except Exception as error:  # of any kind: `qbench --help` works without the package
            found.refused.append(f"the commands of package {package} cannot be read from {point.value}: {error}")
            continue
        for group, name, use in rows:
            if name in known or name in found.modules:
                found.refused.append(f"command {name!r} of package {package} is left out: the name is taken")
            else:
                found.table.setdefault(group, {})[name] = use
                found.modules[name] = f"{point.module}.{name.replace('-', '_')}"
    return found
