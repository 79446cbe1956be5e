"""The speed of the same cases a second time in the same sweep: how far a case lies from itself (A/A).

Such rows are of the kind AGAIN and no results of their own; `of` is the key of the first.
"""

from collections.abc import Iterable

from qbench.measure.records.record import AGAIN, case_key
from qbench.sweep.suite.cases import Case, Planned

OF_QUALITY = ("eval", "tasks")


def again(planned: Iterable[Planned], cases: Iterable[Case]) -> list[tuple[Planned, Case]]:
    """Of those whose speed is measured, the points and cases of a second time."""
    pairs = zip(planned, cases, strict=True)
    return [(Planned(one.point, ("bench",)), _speed_of(case)) for one, case in pairs if case["bench"]]


def _speed_of(case: Case) -> Case:
    rest = {name: value for name, value in case.items() if name not in OF_QUALITY}
    return rest | {"kind": AGAIN, "of": case_key(case), "eval": None}
