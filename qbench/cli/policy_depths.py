"""A list of cache policies on the command line, each at a depth of its own if one is given: `full@1024,h2o@8000`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from qbench.cli.cache_options import LAYOUT_HELP, POLICY, POLICY_HELP, SOME_LAYOUTS, pairs_of, split_list
from qbench.options.cache_spec import DYNAMIC, FULL
from qbench.speed.entry import Entry
from qbench.speed.speed_case import SpeedCase
from qbench.words.written import LARGEST

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
        return PolicyAtDepth(POLICY.convert(policy, param, ctx), DEPTH(depth, param, ctx) if at else None)


def policy_option(*, several: bool = False, callback: Callable | None = None) -> Callable:
    """--policy, as the parameter `policies`; of one policy, `policy`."""
    text = f"{POLICY_HELP} Several with commas; full@1024 is at that depth only." if several else POLICY_HELP
    return click.option(
        "--policy", "policies" if several else "policy", type=PolicyDepths(), callback=callback, help=text
    )


def cache_option(*, several: bool = False, callback: Callable | None = None) -> Callable:
    """--cache, as the parameter `layouts`; of one layout, `layout`."""
    text = f"{LAYOUT_HELP} Several with commas." if several else LAYOUT_HELP
    return click.option("--cache", "layouts" if several else "layout", type=SOME_LAYOUTS, callback=callback, help=text)


def entries_of(layouts: Sequence[str], policies: Sequence[PolicyAtDepth], cases: Sequence[SpeedCase]) -> list[Entry]:
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


def _at(one: PolicyAtDepth, cases: Sequence[SpeedCase]) -> Iterator[SpeedCase]:
    """The cases at the depth of the policy, if it has one"""
    for case in cases:
        yield case if one.depth is None else replace(case, depth=one.depth)
