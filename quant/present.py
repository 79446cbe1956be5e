"""Optional values that the caller knows to be there."""

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """`value`, which is not None: an internal invariant that its type does not express."""
    assert value is not None
    return value
