"""Which rows may stand side by side."""

from collections.abc import Mapping
from typing import Any

from quant.errors import InputError


def require_same_protocol(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """raises InputError where two protocols, as records keep them, differ, naming each field with both values"""
    if a["hash"] == b["hash"]:
        return
    names = [name for name in {**a, **b} if name != "hash" and a.get(name) != b.get(name)]
    differing = ", ".join(f"{name} ({a.get(name)} and {b.get(name)})" for name in names) or "their hashes"
    raise InputError(f"rows of unlike protocol do not compare; they differ in {differing}")
