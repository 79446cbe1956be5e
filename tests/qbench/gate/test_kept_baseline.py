"""The baseline in results/ci, whose rows are of an older schema, still pairs with the suite that made it."""

from pathlib import Path

from qbench.gate.pairing import by_case, read_baseline
from qbench.measure.records.record import case_key
from qbench.sweeps.suite.cases import make_cases, select_points
from qbench.sweeps.suite.load_suite import load_suite

ROOT = Path(__file__).parents[3]


def test_every_case_of_the_ci_suite_has_its_row(monkeypatch):
    monkeypatch.delenv("QBENCH_ISA", raising=False)
    baseline = read_baseline(ROOT / "results" / "ci")
    suite = load_suite(ROOT / "suites" / "ci.yaml")
    cases = make_cases(suite, select_points(suite))
    assert len(by_case(baseline)) == len(cases) == 4
    assert {case_key(case) for case in cases} == {record.key for record in baseline}
