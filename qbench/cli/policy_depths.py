"""A list of cache policies on the command line, each at a depth of its own if one is given: `full@1024,h2o@8000`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from qbench.cli.cache_options import CheckedList, pairs_of, split_list
from qbench.cli.run_options import type_of
from qbench.run.axes import AXIS
from qbench.run.cache_spec import DYNAMIC, FULL, check_layout
from qbench.run.work import SpeedWork
from qbench.speed.entry import Entry
from qbench.words.written import LARGEST
from quant.present import present

DEPTH = click.IntRange(0, LARGEST)


@dataclass(frozen=True, slots=True)
class PolicyAtDepth:
    """depth: None: those of --depth"""

    policy: str
    depth: int | None = None

    @property
    def text(self) -> str:
        """As it was written."""
        return self.policy if self.depth is None else f"{self.policy}@{self.depth}"


class PolicyDepths(click.ParamType):
    """`"full@1024,h2o:budget=64"` -> its policies, without repeats."""

    name = "policy,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple:
        if isinstance(value, tuple):
            return value
        return tuple(dict.fromkeys(self._one(text, param, ctx) for text in split_list(value)))

    def _one(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> PolicyAtDepth:
        policy, at, depth = text.partition("@")
        return PolicyAtDepth(
            type_of(AXIS["policy"]).convert(policy, param, ctx), DEPTH(depth, param, ctx) if at else None
        )


def policy_option(*, several: bool = False, callback: Callable | None = None) -> Callable:
    """--policy, as the parameter `policies`; of one policy, `policy`."""
    return _option("policy", PolicyDepths(), "; full@1024 is at that depth only", several, callback)


def cache_option(*, several: bool = False, callback: Callable | None = None) -> Callable:
    """--cache, as the parameter `caches`; of one layout, `cache`."""
    return _option("cache", CheckedList("cache,...", check_layout), "", several, callback)


def _option(name: str, kind: click.ParamType, more: str, several: bool, callback: Callable | None) -> Callable:
    text = present(AXIS[name].option).help + (f" Several with commas{more}." if several else "")
    parameter = {"policy": "policies", "cache": "caches"}[name] if several else name
    return click.option(f"--{name}", parameter, type=kind, callback=callback, help=text)


def entries_of(layouts: Sequence[str], policies: Sequence[PolicyAtDepth], cases: Sequence[SpeedWork]) -> list[Entry]:
    """Every layout, policy and case that go together, in this order.

    raises   InputError as `pairs_of`
    """
    asked = policies or (PolicyAtDepth(FULL),)
    names = list(dict.fromkeys(one.policy for one in asked))
    pairs = pairs_of(layouts or (DYNAMIC,), names)
    entries = [
        Entry(layout, policy, case)
        for layout, policy in pairs
        for one in asked
        if one.policy == policy
        for case in _at(one, cases)
    ]
    return list(dict.fromkeys(entries))


def _at(one: PolicyAtDepth, cases: Sequence[SpeedWork]) -> Iterator[SpeedWork]:
    """The cases at the depth of the policy, if it has one"""
    for case in cases:
        yield case if one.depth is None else replace(case, depth=one.depth)
