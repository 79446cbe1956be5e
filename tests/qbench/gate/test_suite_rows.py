"""A folder that has seen several versions of a suite, and the rows of the one that is there now."""

from dataclasses import replace
from pathlib import Path

import pytest

from qbench.gate.suite_rows import require_all, rows_of, suite_cases
from qbench.measure.metrics import Metrics
from qbench.measure.records.record import Record, make_record, origin
from qbench.run.case import Case
from quant.errors import InputError

ORIGIN = origin()
SUITE = """\
name: small
models: [rand:tiny]
recipes: [{recipes}]
threads: 1
bench: {{pp: {pp}, tg: 4}}
"""


def cases(folder: Path, recipes: str = "bf16, q8_0", pp: int = 8) -> list[Case]:
    path = folder / "small.yaml"
    path.write_text(SUITE.format(recipes=recipes, pp=pp))
    return suite_cases(path)


def row(of: Case | dict, hour: int = 0) -> Record:
    case = of if isinstance(of, Case) else Case.from_json(of)
    return replace(make_record(case, Metrics(), where=ORIGIN), time=f"2026-01-01T{hour:02d}:00:00")


def test_rows_of_the_suite_as_it_was_are_left_out(tmp_path):
    before = cases(tmp_path, "bf16, q8_0, q4_0") + cases(tmp_path, pp=9)
    now = cases(tmp_path)
    kept = [row(case) for case in now]
    assert rows_of(now, [*kept, *(row(case, hour=1) for case in before[2:])]) == kept


def test_the_last_row_of_a_case_counts(tmp_path):
    (case,) = cases(tmp_path, "bf16")
    assert rows_of([case], [row(case, 2), row(case, 3), row(case, 1)]) == [row(case, 3)]


@pytest.mark.parametrize("change", [{"new": 1}, {"fingerprint": "another"}], ids=["tells more", "of another model"])
def test_another_commit_may_describe_a_case_differently(tmp_path, change):
    (case,) = cases(tmp_path, "bf16")
    other = row(case.to_json() | change)
    assert rows_of([case], [other]) == [other]
    assert rows_of([case], [row(case.to_json() | change | {"threads": 2})]) == []
    assert rows_of([case], [row(case), row(case.to_json() | change, hour=1)]) == [row(case)], "its own key goes before"


def test_a_relative_path_of_a_suite_finds_the_rows_of_its_sweep(tmp_path, monkeypatch):
    """The sweep is given the absolute path, and so has absolute paths of texts in its cases."""
    (tmp_path / "text.txt").write_text("Once upon a time. " * 200)
    path = tmp_path / "small.yaml"
    path.write_text(SUITE.format(recipes="bf16", pp=8) + "eval: {text: text.txt}\n")
    swept = [row(case) for case in suite_cases(path.resolve())]
    monkeypatch.chdir(tmp_path)
    assert rows_of(suite_cases(Path("small.yaml")), swept) == swept


def test_a_case_without_a_row_is_named(tmp_path):
    now = cases(tmp_path)
    require_all(now, [row(case) for case in now], "this tree")
    with pytest.raises(InputError, match=r"left no row of rand:tiny q8_0; cases without a row: 1 of 2"):
        require_all(now, [row(now[0])], "this tree")
