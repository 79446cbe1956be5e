"""The line about a long run, with a clock of the test."""

import pytest

from qbench.cli.progress import tell_long_run


@pytest.mark.parametrize(
    "total, expected",
    [(40, ""), (2341, "2,341 windows take about 58 min 26 s more; --windows N takes fewer")],
    ids=["short", "long"],
)
def test_the_first_part_predicts_the_time_of_the_rest(capsys, total, expected):
    seen, now = [], iter([100.0, 106.0])
    updated = tell_long_run(lambda *told: seen.append(told), "windows", "--windows N takes fewer", lambda: next(now))
    updates = [(1, 2, "quantizing"), (0, total, "windows"), (4, total, "windows"), (8, total, "windows")]
    for update in updates:
        updated(*update)
    assert seen == updates
    assert expected in capsys.readouterr().err if expected else not capsys.readouterr().err
