"""Further launches: the speed of the same cases measured again in fresh processes, after all other cases.

Such rows are of the kind AGAIN, with the key of the first row in `of`; `qbench.comparison.kept_launches` joins them.
"""

from collections.abc import Sequence
from dataclasses import replace

from qbench.measure.records.kinds import AGAIN
from qbench.measure.records.record import case_key
from qbench.run.case import Case
from qbench.sweeps.suite.cases import Selected


def further_launches(selected: Sequence[Selected], cases: Sequence[Case], launches: int) -> list[tuple[Selected, Case]]:
    """Launches 2, 3, ... of every speed, all cases once per launch, so that the launches of a case spread over time."""
    timed = [(Selected(one.point, ("bench",)), case) for one, case in zip(selected, cases, strict=True) if case.speed]
    return [(one, _launch(case, number)) for number in range(2, launches + 1) for one, case in timed]


def _launch(case: Case, number: int) -> Case:
    """number: of the launch; the case of the second does not name it, as in records from before there were more than
    two"""
    return replace(case, kind=AGAIN, of=case_key(case), launch=number if number > 2 else None, quality=None, tasks=None)
