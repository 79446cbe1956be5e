"""Comparisons of records that a test holds as documents."""

from collections.abc import Mapping
from typing import Any

from qbench.comparison import comparison
from qbench.comparison.comparison import Comparison
from qbench.measure.records.record import Record
from qbench.statistics.cell import Floors


def compare_rows(a: Mapping[str, Any], b: Mapping[str, Any], floors: Floors | None = None) -> Comparison:
    return comparison.compare_records(Record.from_json(a), Record.from_json(b), floors)


def collect(a: Mapping[str, Any], b: Mapping[str, Any]) -> Comparison:
    return comparison.collect(Record.from_json(a), Record.from_json(b))
