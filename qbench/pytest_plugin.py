"""The pytest plugin: the fixture `qbench_gate`, and the path of its baseline."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("qbench")
    group.addoption("--qbench-baseline", type=Path, help="Rows that `qbench_gate` compares with: a file or folder.")
    group.addoption("--qbench-save", action="store_true", help="Append to --qbench-baseline instead of comparing.")


@pytest.fixture(scope="session")
def qbench_gate(request: pytest.FixtureRequest):
    """Quality, memory and speed of a model, with limits or against a baseline; see qbench.gate.fixture.QbenchGate."""
    baseline = request.config.getoption("qbench_baseline")
    save = bool(request.config.getoption("qbench_save"))
    if save and baseline is None:
        raise pytest.UsageError("--qbench-save appends to --qbench-baseline: give that too")

    from qbench.gate.fixture import QbenchGate  # imports torch, which a run without this fixture has no need of

    return QbenchGate(baseline, save)
