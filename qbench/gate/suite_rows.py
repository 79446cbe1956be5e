"""Which rows of a folder are the suite's as it is now: it may hold others, of the suite as it was."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from qbench.gate.pairing import names_of
from qbench.measure.records.record import Record, case_key
from qbench.run.case import Case
from qbench.sweeps.suite.cases import make_cases, select_points
from qbench.sweeps.suite.load_suite import load_suite
from qbench.words.written import real_path
from quant.errors import InputError

OF_WHAT = ("fingerprint", "recipe_sha256")  # keys of a case that another commit may change


def suite_cases(suite: Path) -> list[Case]:
    """Those of the sweep, which is given the absolute path: texts are then absolute paths, too.

    raises   InputError as `load_suite` and `make_cases`
    """
    loaded = load_suite(real_path(suite))
    return make_cases(loaded, select_points(loaded))


def rows_of(cases: Sequence[Case], rows: Sequence[Record]) -> list[Record]:
    """The last row of each case, in the order of the cases; cases without any are left out.

    A row has the case's own key or, if another commit describes a case by other keys, agrees in all keys that both
    have.
    """
    by_key = [_last([row for row in rows if row.key == case_key(case)]) for case in cases]
    found = [row or _last_alike(case, rows) for row, case in zip(by_key, cases, strict=True)]
    return [row for row in found if row is not None]


def require_all(cases: Sequence[Case], rows: Sequence[Record], where: str) -> None:
    """raises InputError if a case has no row: a comparison of the others would look whole"""
    lacking = [case for case in cases if not rows_of([case], rows)]
    if lacking:
        name = names_of(cases)[cases.index(lacking[0])]
        raise InputError(
            f"{where}: the sweep left no row of {name}; cases without a row: {len(lacking)} of {len(cases)}"
        )


def _last_alike(case: Case, rows: Sequence[Record]) -> Record | None:
    wanted = case.to_json()
    return _last([row for row in rows if is_alike(row.case.to_json(), wanted)])


def is_alike(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether two cases, as JSON, agree in all that both have; OF_WHAT may differ"""
    return all(one[name] == other[name] for name in one.keys() & other.keys() if name not in OF_WHAT)


def _last(rows: Sequence[Record]) -> Record | None:
    return max(rows, key=lambda row: row.time, default=None)
