"""A fixture that runs commands."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from qbench.cli import keep_path
from qbench.cli.main import main
from qbench.measure.host.commit import code_version


@pytest.fixture
def run(capfd) -> Callable[..., tuple[int, str]]:
    """run("info", "--json") -> exit status, and all that was printed"""

    def call(*argv: str) -> tuple[int, str]:
        status = main(list(argv))
        printed = capfd.readouterr()
        return status, printed.out + printed.err

    return call


@pytest.fixture(autouse=True)
def committed_tree(monkeypatch):
    """A checkout with changes takes --keep too: the pages are for readers without any."""
    monkeypatch.setattr(keep_path, "code_version", lambda: replace(code_version(), dirty=False))
