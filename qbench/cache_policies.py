"""Cache layouts and cache policies, by the names that users give, and the runtime's kind for a pair of them.

layout   dynamic   memory that grows with the tokens
         static    memory for a fixed number of tokens, allocated once
         paged     pages that any sequence may hold
         none      no cache: every step computes all tokens again
policy   one of `qbench.policies`, as "full", "window:1024", "sinks:4+1020" or "snapkv:budget=512"
"""

from qbench.cache_kinds import DYNAMIC, NONE, PAGED, POLICY, STATIC, WINDOW, parse_kind
from qbench.nearest import nearest
from quant.errors import InputError

LAYOUTS = (DYNAMIC, STATIC, PAGED, NONE)
FULL, SINKS = "full", "sinks"


def check_layout(name: str) -> None:
    """raises InputError if the name is not one of LAYOUTS"""
    if name.partition(":")[0] == WINDOW:
        raise InputError(f"cache {name!r} is a policy now: {policy_of(name)}; layouts are {', '.join(LAYOUTS)}")
    if name not in LAYOUTS:
        raise InputError(f"unknown cache {name!r}; known: {', '.join(LAYOUTS)}{nearest(name, LAYOUTS)}")


def check_policy(text: str) -> None:
    """raises InputError for an unknown policy, and for options that it does not have"""
    if text != FULL:  # the policies import torch
        from qbench.policies import parse_policy

        parse_policy(text)


def kind_of(layout: str, policy: str) -> str:
    """The kind of cache that the runtime builds for a layout and a policy, as `qbench.cache_kinds` names it.

    raises   InputError for an unknown name, and for a pair that does not go together
    """
    check_layout(layout)
    check_policy(policy)
    if policy == FULL:
        return layout
    if layout != DYNAMIC:
        raise InputError(f"cache {layout} goes with policy full; policy {policy} needs cache dynamic")
    name, _, counts = policy.partition(":")
    if name == SINKS:
        sinks, _, window = counts.partition("+")
        return f"{WINDOW}:{window}+{sinks}"
    return policy


def layout_of(kind: str) -> str:
    """The layout of a kind of cache."""
    return DYNAMIC if parse_kind(kind).name in (WINDOW, POLICY) else kind


def policy_of(kind: str) -> str:
    """The policy of a kind of cache."""
    named = parse_kind(kind)
    if named.sinks:
        return f"{SINKS}:{named.sinks}+{named.window}"
    return kind if named.name in (WINDOW, POLICY) else FULL
