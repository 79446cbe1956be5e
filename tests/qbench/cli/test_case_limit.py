import pytest

from qbench.cli.types import CaseLimit


@pytest.mark.parametrize(
    "text, limit",
    [("10", (10, None)), ("90s", (None, 90)), ("50min", (None, 3000)), ("1.5h", (None, 5400)), ("2 h", (None, 7200))],
)
def test_cases_or_a_time(text, limit):
    assert CaseLimit().convert(text, None, None) == limit
