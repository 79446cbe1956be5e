"""Mutated files and requests: refused in one line or taken, never a traceback, a hang, or memory without end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import run
from fuzz.target import Target
from fuzz.targets import TARGETS, HttpTarget, corpus_of
from fuzz.worker import case_input, outcome, outcomes, raise_hang
from support.waits import WAIT_S

FEW = 12  # cases of each target in every run: that a target works at all


@pytest.fixture(autouse=True)
def hang_signal():
    before = signal.signal(signal.SIGPROF, raise_hang)
    yield
    signal.signal(signal.SIGPROF, before)


@pytest.fixture(scope="module", params=[name for name in TARGETS if TARGETS[name] is not HttpTarget])
def target(request, tmp_path_factory) -> Target:
    return TARGETS[request.param](tmp_path_factory.mktemp(request.param))


def test_inputs_that_failed_once_and_a_few_more(target):
    seeds = target.seeds()
    assert outcome(target, seeds[0])[0] in ("accepted", "forward")  # else all that follows is refused for one reason
    inputs = [*corpus_of(target.name), *(case_input(target, seeds, target.name, number) for number in range(FEW))]
    found = [outcome(target, raw) for raw in inputs]
    assert not [each for each in found if each[1]]


def test_outcomes_are_distinguished(tmp_path):
    class Faulty(Target):
        name = "faulty"

        def seeds(self):
            return [b""]

        def run(self, raw):
            if raw == b"hang":
                while True:
                    pass
            raise {b"key": KeyError, b"memory": MemoryError, b"exit": SystemExit, b"file": FileNotFoundError}[raw]()

    target = Faulty(tmp_path)
    kinds = {raw: outcome(target, raw)[0] for raw in (b"key", b"memory", b"exit", b"file")}
    assert kinds == {b"key": "traceback", b"memory": "growth", b"exit": "traceback", b"file": "refused"}


def test_inputs_that_run_together_have_the_same_outcomes_separately(tmp_path):
    target = TARGETS["records"](tmp_path)
    seeds = target.seeds()
    inputs = [case_input(target, seeds, "records", number) for number in range(FEW)]
    newer = seeds[0].replace(b'"schema_version": ', b'"schema_version": 99')
    inputs += [b"no record", seeds[0], newer]
    found = {raw: kind for raw, kind, _ in outcomes(target, inputs)}
    assert found == {raw: outcome(target, raw)[0] for raw in inputs} and found[newer] == "refused"


@pytest.mark.parametrize(
    "code, status",
    [("while True: pass", -signal.SIGKILL), ("import time; time.sleep(0.4)", 0)],
    ids=["busy", "starved"],
)
def test_a_worker_that_gets_no_processor_is_no_hang(monkeypatch, tmp_path, code, status):
    """One that waits for a busy machine lives on; one that computes without progress is killed."""
    monkeypatch.setattr(run, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(run, "WATCH_CPU_SECONDS", 0.5)
    (tmp_path / "progress").write_bytes(b"1")
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE, text=True) as worker:
        run.watched(worker, tmp_path / "progress", WAIT_S)
    assert worker.returncode == status


@pytest.mark.exhaustive("a minute of cases of all targets")
def test_a_minute_of_everything():
    """The same cases in each run; `make fuzz` looks further."""
    folder = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "fuzz.run", "--seconds", os.environ.get("FUZZ_SECONDS", "60"), "--cases", "600"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    print(done.stdout)
