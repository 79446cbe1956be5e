"""A fixture that runs commands."""

from collections.abc import Callable

import pytest

from qbench.cli.main import main


@pytest.fixture
def run(capfd) -> Callable[..., tuple[int, str]]:
    """run("info", "--json") -> exit status, and all that was printed"""

    def call(*argv: str) -> tuple[int, str]:
        status = main(list(argv))
        printed = capfd.readouterr()
        return status, printed.out + printed.err

    return call
