"""Promises about artifacts and records: they survive a kill at any call, and a disk that is full or broken."""

import errno
from random import Random

import pytest
from support.faults import (
    GATING,
    KEEPING,
    SAVING,
    SERVING,
    SWEEPING,
    Fault,
    broken_disks,
    faults,
    golden_run,
    library,
    outcome,
    prepared,
    quantizing,
    run,
)

from qbench.measure.host.commit import code_version

KILLS = 3  # per scenario; `python -m support.faults` tries 200 in all scenarios
PLAIN = quantizing("rtn-gguf")
TRIED = (PLAIN, quantizing("gptq"), KEEPING)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    try:
        library()
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """Per scenario the files of a run without a fault, and the number of its calls; each is run once."""
    found = {}

    def of(scenario):
        if scenario.name not in found:
            found[scenario.name] = golden_run(scenario, tmp_path_factory.mktemp("golden"))
        return found[scenario.name]

    return of


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(1, marks=pytest.mark.exhaustive("two more runs"), id="before the rows"),
        pytest.param(2, id="before they are flushed"),
    ],
)
def test_rows_survive_a_kill(golden, tmp_path, at):
    assert outcome(KEEPING, golden(KEEPING)[0], tmp_path, Fault("write", "kill", at)) is None


@pytest.mark.exhaustive("four runs; `python -m support.faults` needs them")
@pytest.mark.parametrize("scenario", (SERVING, SWEEPING, SAVING, GATING), ids=lambda scenario: scenario.name)
def test_without_a_fault_it_runs(golden, scenario):
    if "gate" in scenario.name and code_version().dirty:
        pytest.skip("the gate keeps no rows of a tree with changes")
    _, num_calls = golden(scenario)
    assert num_calls > 0


@pytest.mark.exhaustive("two runs of quantize; the rows above are quicker")
def test_an_artifact_survives_a_kill_in_the_middle(golden, tmp_path):
    out, num_calls = golden(PLAIN)
    assert outcome(PLAIN, out, tmp_path, Fault("write", "kill", num_calls // 2)) is None


def test_the_library_makes_calls_fail(golden, tmp_path):
    """Otherwise all that follows would pass without a fault."""
    folder = prepared(KEEPING, tmp_path, "full")
    done, _ = run(KEEPING, folder, Fault("write", str(errno.ENOSPC), 1, stays=True))
    assert done.returncode == 2 and "the disk is full" in done.stderr
    folder = prepared(KEEPING, tmp_path, "killed")
    assert run(KEEPING, folder, Fault("write", "kill", 1))[0].returncode == -9
    assert golden(KEEPING)[1] >= 2


@pytest.mark.exhaustive("minutes: kills and broken disks per scenario")
@pytest.mark.parametrize("scenario", TRIED, ids=lambda one: one.name)
def test_every_scenario_survives_kills_and_broken_disks(golden, tmp_path, scenario):
    out, num_calls = golden(scenario)
    chosen = faults(Random(scenario.name), num_calls, KILLS)
    broken = {repr(fault): outcome(scenario, out, tmp_path, fault) for fault in (*chosen, *broken_disks(num_calls))}
    assert not {fault: why for fault, why in broken.items() if why is not None}
