"""Values that a table needs, from records that anybody may have written."""

from typing import TypeVar

from quant.errors import InputError

T = TypeVar("T")


def recorded(value: T | None) -> T:
    """`value`, which every row of ours has. raises InputError for a row that lacks it"""
    if value is None:
        raise InputError("a row of these records lacks a value that this table shows; measure it again")
    return value
