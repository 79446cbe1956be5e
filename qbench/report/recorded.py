"""Values that a table needs, from records that anybody may have written, and ratios as tables show them."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np

from qbench.measure.records.kinds import AnyCase, AnyMetrics
from qbench.measure.records.record import Record
from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import student_mean
from quant.errors import InputError

T = TypeVar("T")
OfCase = TypeVar("OfCase", bound=AnyCase)
OfMetrics = TypeVar("OfMetrics", bound=AnyMetrics)
WIDEST = 3  # times the low end: a wider interval shows hardly more than the sign of the difference
RULE = (
    'ratios have 95 % intervals; "undecided" if 1 is inside or there is no interval, "not measured well enough" if the '
    f"high end is more than {WIDEST} times the low end"
)


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


def judged_ratio(value: float, low: float | None, high: float | None, unit: str = "") -> str:
    """ "1.31x [1.25, 1.40]", "undecided: 1.02x [0.97, 1.07]", "not measured well enough [0.21, 18.25]" """
    if low is None or high is None:
        return f"undecided: {value:.2f}{unit} (no interval)"
    ends = f"[{low:.2f}, {high:.2f}]"
    if high > WIDEST * low:
        return f"not measured well enough {ends}"
    shown = f"{value:.2f}{unit} {ends}"
    return f"undecided: {shown}" if low <= 1 <= high else shown


def ratio_of_rounds(ours_ms: Sequence[Sequence[float]], theirs_ms: Sequence[Sequence[float]]) -> Estimate:
    """How many times as fast ours is, over rounds in which both took turns: the geometric mean of the rounds' ratios.

    ours_ms, theirs_ms   samples of each round
    """
    logs = [np.log([np.median(one) for one in rounds]) for rounds in (ours_ms, theirs_ms)]
    return student_mean(logs[1] - logs[0]).exp()
