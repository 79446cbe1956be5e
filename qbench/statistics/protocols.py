"""Rows that may be compared with each other."""

from collections.abc import Mapping
from typing import Any

from quant.errors import InputError


def require_same_protocol(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """raises InputError where two protocols, as records keep them, differ, naming each field with both values"""
    if a["hash"] == b["hash"]:
        return
    raise InputError(f"rows of unlike protocol do not compare; they differ in {differing(a, b)}")


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """ "window (1024 and 512), stride (1024 and 512)" """
    names = [name for name in {**a, **b} if name != "hash" and a.get(name) != b.get(name)]
    return ", ".join(f"{name} ({a.get(name)} and {b.get(name)})" for name in names) or "their hashes"
