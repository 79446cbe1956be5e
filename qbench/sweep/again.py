"""The speed of the same cases a second time in the same sweep: how far a case lies from itself (A/A).

Such rows are of the kind AGAIN and no results of their own; `of` is the key of the first.
"""

from collections.abc import Iterable
from dataclasses import replace

from qbench.measure.case import Case
from qbench.measure.records.kinds import AGAIN
from qbench.measure.records.record import case_key
from qbench.sweep.suite.cases import Selected


def again(selected: Iterable[Selected], cases: Iterable[Case]) -> list[tuple[Selected, Case]]:
    """The points and cases of a second time, of those whose speed is measured."""
    pairs = zip(selected, cases, strict=True)
    return [(Selected(one.point, ("bench",)), _speed_of(case)) for one, case in pairs if case.speed]


def _speed_of(case: Case) -> Case:
    return replace(case, kind=AGAIN, of=case_key(case), quality=None, tasks=None)
