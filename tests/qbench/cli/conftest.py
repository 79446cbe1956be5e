"""The command as a user runs it, in this process: exit status, stdout and stderr."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from support.artifact import write_artifact
from support.memory_source import MemorySource

from qbench.cli import keep_path
from qbench.cli.main import main
from qbench.measure.host.commit import code_version


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    def fails_with(self, *parts: str) -> str:
        """Exit status 2, nothing on stdout, and one line on stderr, returned, that holds all `parts`."""
        assert (self.status, self.out) == (2, ""), self
        assert self.err.count("\n") == 1 and self.err.startswith("qbench: "), self.err
        for part in parts:
            assert part in self.err, self.err
        return self.err


@pytest.fixture
def qbench(capsys, monkeypatch):
    """The command, as if this checkout had no changes: --keep refuses records of another tree."""
    monkeypatch.delenv("QBENCH_DEBUG", raising=False)
    monkeypatch.setattr(keep_path, "code_version", lambda: replace(code_version(), dirty=False))
    monkeypatch.setattr(sys, "argv", ["qbench"])

    def run(*argv: str) -> Outcome:
        capsys.readouterr()
        status = main([str(word) for word in argv])
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture
def small_model(tmp_path) -> Path:
    """A directory of random weights without a tokenizer: quantized and calibrated in a moment."""
    return write_artifact(MemorySource(), tmp_path / "model")


@pytest.fixture
def token_ids(tmp_path) -> Path:
    """Calibration text for it"""
    path = tmp_path / "ids.npy"
    np.save(path, np.random.default_rng(0).integers(0, 320, 1000))
    return path
