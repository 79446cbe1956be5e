from collections.abc import Callable
from pathlib import Path

import pytest

from cpu_kernels.emulation import amx_emulator, require_around


@pytest.fixture(scope="session")
def emulator() -> Path:
    """The emulator as a library to preload."""
    try:
        return amx_emulator()
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kernels_emulator(emulator) -> Path:
    """The emulator for the kernels, which need more than tiles; programs made of tiles alone run anywhere."""
    try:
        require_around("amx")
    except RuntimeError as error:
        pytest.skip(str(error))
    return emulator


BOUND = "amx bound"  # property of a test: (format, multiply-adds per cycle); reports carry it from any process


@pytest.fixture
def amx_bounds(request) -> Callable[[str, float], None]:
    """amx_bounds(format, multiply-adds per cycle that its tile instructions allow at best): printed at the end"""
    return lambda name, bound: request.node.user_properties.append((BOUND, (name, bound)))


def pytest_terminal_summary(terminalreporter):
    reports = terminalreporter.getreports("passed")
    bounds = dict(value for report in reports for name, value in report.user_properties if name == BOUND)
    if not bounds:
        return
    terminalreporter.section("AMX: bounds from exact instruction counts, not measurements")
    terminalreporter.line("multiply-adds a cycle at most, of 1024 int8 or 512 bfloat16:")
    for name, bound in bounds.items():
        terminalreporter.line(f"{name}: {bound:.0f}")
