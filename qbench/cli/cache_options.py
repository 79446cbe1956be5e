"""Names of layouts and policies on the command line, one or a list of them."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from qbench.run.cache_spec import CacheSpec
from quant.errors import InputError


class Checked(click.ParamType):
    """A name that `check` knows."""

    def __init__(self, name: str, check: Callable[[Any], Any]) -> None:
        self.name, self.check = name, check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            self.check(value)
        except InputError as error:
            self.fail(str(error), param, ctx)
        return value


class CheckedList(click.ParamType):
    """`"none,dynamic"` -> the names, without repeats."""

    def __init__(self, name: str, check: Callable[[Any], Any]) -> None:
        self.name, self.one = name, Checked(name, check)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        values = value if isinstance(value, tuple) else split_list(value)
        return tuple(dict.fromkeys(self.one.convert(one, param, ctx) for one in values))


def split_list(text: str) -> list[str]:
    """ "full,h2o:budget=64,recent=0.5,tova:64" -> the names; "recent=0.5" belongs to the name before it"""
    names: list[str] = []
    for piece in text.split(","):
        if names and "=" in piece and ":" not in piece.partition("=")[0]:
            names[-1] += f",{piece}"
        else:
            names.append(piece)
    return names


def pairs_of(layouts: Sequence[str], policies: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of a layout and a policy that go together. raises InputError for a name that no list has"""
    pairs = [(layout, policy) for layout in layouts for policy in policies if _fits(layout, policy)]
    for layout in layouts:
        if not any(layout == one for one, _ in pairs):
            CacheSpec(layout, policies[0])
    for policy in policies:
        if not any(policy == one for _, one in pairs):
            CacheSpec(layouts[0], policy)
    return pairs


def _fits(layout: str, policy: str) -> bool:
    try:
        CacheSpec(layout, policy)
    except InputError:
        return False
    return True
