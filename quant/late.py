"""Modules that are imported when they are first used: `qbench models` has no use for torch, which takes seconds."""

from importlib import import_module
from typing import Any


class LateModule:
    """Replaces a module; the first use of an attribute imports it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)  # the next time there is no search
        return value
