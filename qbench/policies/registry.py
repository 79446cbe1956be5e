"""Names of policies: `@policy("h2o")` registers a class, `parse_policy("h2o:budget=512")` makes one."""

from dataclasses import dataclass
from functools import lru_cache

from qbench.policies.policy import CachePolicy
from qbench.words.registry import Registry
from quant.json_data import JsonData

_POLICIES = Registry[CachePolicy]("policy")
policy = _POLICIES.register
policy_names = _POLICIES.names
parse_policy = lru_cache(maxsize=256)(_POLICIES.parse)  # policies are frozen, so that all may have the same object


@dataclass(frozen=True, slots=True)
class Listed(JsonData):
    """One policy as `qbench policies` shows it. usage: its options with their defaults"""

    policy: str
    usage: str
    description: str


def listed() -> list[Listed]:
    """All policies in the order of their registration."""
    return [Listed(entry.name, entry.usage, entry.description) for entry in _POLICIES.entries()]
