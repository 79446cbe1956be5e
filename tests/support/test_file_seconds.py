from collections import Counter
from dataclasses import dataclass

from support.file_seconds import SHOWN, file_seconds, seconds_table


@dataclass(frozen=True)
class Report:
    nodeid: str
    duration: float


def test_all_stages_of_a_file_are_summed():
    reports = [Report("tests/test_a.py::test_b[1]", 0.5), Report("tests/test_a.py::test_b[2]", 0.25)]
    reports.append(Report("tests/test_c.py::test_d", 1.0))
    assert file_seconds(reports) == {"tests/test_a.py": 0.75, "tests/test_c.py": 1.0}


def test_the_slowest_come_first_and_the_rest_in_one_line():
    seconds = Counter({f"tests/test_{i}.py": float(i) for i in range(SHOWN + 2)})
    lines = seconds_table(seconds)
    assert lines[0] == f"   {SHOWN + 1}.0  tests/test_{SHOWN + 1}.py"
    assert lines[-1] == "    1.0  2 other files" and len(lines) == SHOWN + 1
    assert len(seconds_table(Counter({"tests/test_a.py": 1.0}))) == 1
