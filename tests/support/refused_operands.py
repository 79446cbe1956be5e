"""Operands of a GPU op that it refuses."""

from collections.abc import Callable
from typing import Any

import pytest


def assert_refused(op: Callable[..., Any], operands: dict[str, Any], row: tuple[Callable, type, str]) -> None:
    """row: operands -> those that are replaced, the error, and its message; `op` takes all of them by name"""
    change, error, message = row
    with pytest.raises(error, match=message):
        op(**operands | change(operands))
