"""Kinds of caches that the runtime builds, in every KV format; users name a layout and a policy.

none      nothing: every step computes all tokens anew
dynamic   all of them, in memory that grows with them
static    all of them, in memory for a fixed number of them, and never more
window    those that a later query sees: in each layer its own window, or with window:N the last N tokens for all;
          with window:N+S the first S tokens, too, as attention sinks
paged     all of them, in pages that any sequence may hold

Any other policy of `qbench.policies` is a kind of its own: tokens that it keeps, chosen as the text goes on.
"""

from dataclasses import dataclass

from qbench.nearest import nearest
from quant.errors import InputError

NONE, DYNAMIC, STATIC, WINDOW, PAGED = KINDS = ("none", "dynamic", "static", "window", "paged")
POLICY = "policy"


@dataclass(frozen=True, slots=True)
class CacheKind:
    """A layout and which tokens it holds.

    name    one of KINDS, or POLICY
    window  tokens that a query sees, its own included, None: as the model has it
    sinks   first tokens that a query sees as well
    policy  as `qbench.policies.parse_policy` reads it, of a kind named POLICY
    """

    name: str
    window: int | None = None
    sinks: int = 0
    policy: str | None = None


def parse_kind(text: str) -> CacheKind:
    """ "paged", "window:256" -> the kind; raises InputError for an unknown name or an impossible window"""
    name, colon, size = text.partition(":")
    if name not in KINDS:
        from qbench.policies import parse_policy, policy_names

        if name in policy_names():
            parse_policy(text)
            return CacheKind(POLICY, policy=text)
        raise InputError(f"unknown kind of cache {text!r}; known: {', '.join(KINDS)}{nearest(name, KINDS)}")
    if not colon:
        return CacheKind(name)
    window, plus, sinks = size.partition("+")
    if name != WINDOW or not _is_count(window) or (plus and not _is_count(sinks)):
        raise InputError(
            f"kind of cache {text!r}: only window takes a number, of 1 token or more, as in window:256, or with the "
            "first 4 tokens window:256+4"
        )
    return CacheKind(name, int(window), int(sinks or 0))


def _is_count(text: str) -> bool:
    return text.isdecimal() and int(text) > 0
