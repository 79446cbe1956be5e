"""Values that a table needs, from records that anybody may have written, and their cases and metrics by class."""

from collections.abc import Iterable
from typing import TypeVar

from qbench.measure.records.kinds import AnyCase, AnyMetrics
from qbench.measure.records.record import Record
from quant.errors import InputError

T = TypeVar("T")
OfCase = TypeVar("OfCase", bound=AnyCase)
OfMetrics = TypeVar("OfMetrics", bound=AnyMetrics)


def recorded(value: T | None) -> T:
    """`value`, which every row of ours has. raises InputError for a row that lacks it"""
    if value is None:
        raise InputError("a row of these records lacks a value that this table shows; measure it again")
    return value


def rows_of(records: Iterable[Record], case: type[OfCase], metrics: type[OfMetrics]) -> list[tuple[OfCase, OfMetrics]]:
    """raises TypeError for a row of another kind, or one that failed"""
    found = []
    for record in records:
        if not isinstance(record.case, case) or not isinstance(record.metrics, metrics):
            raise TypeError(f"{record.key}: got a row of kind {record.case.kind!r}, expected a {case.__name__}")
        found.append((record.case, record.metrics))
    return found
