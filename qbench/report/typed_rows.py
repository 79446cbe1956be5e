"""The case and the metrics of rows of one kind, by their classes."""

from collections.abc import Iterable
from typing import TypeVar

from qbench.measure.records.kinds import AnyCase, AnyMetrics
from qbench.measure.records.record import Record

OfCase = TypeVar("OfCase", bound=AnyCase)
OfMetrics = TypeVar("OfMetrics", bound=AnyMetrics)


def rows_of(records: Iterable[Record], case: type[OfCase], metrics: type[OfMetrics]) -> list[tuple[OfCase, OfMetrics]]:
    """raises TypeError for a row of another kind, or one that failed"""
    found = []
    for record in records:
        if not isinstance(record.case, case) or not isinstance(record.metrics, metrics):
            raise TypeError(f"{record.key}: got a row of kind {record.case.kind!r}, expected a {case.__name__}")
        found.append((record.case, record.metrics))
    return found
