"""The gate as a whole, on made-up rows and launches: the pairs that are compared, and the result."""

import json
from pathlib import Path

import pytest
from support.gate_rows import MACHINE, blocks, floor_row, launches, row

from qbench.gate import baseline as baseline_module
from qbench.gate import floors as floors_module
from qbench.gate import run as run_module
from qbench.gate import timed
from qbench.gate.base_commit import Tree
from qbench.gate.options import GateOptions, suite_file
from qbench.gate.run import run_gate
from qbench.measure.host.commit import ROOT
from qbench.measure.host.machine import Machine
from qbench.measure.launch import Launch
from qbench.measure.records.record import Record
from quant.errors import InputError
from quant.json_data import plain

SUITE = """\
name: small
models: [rand:tiny]
recipes: [bf16, q8_0]
threads: 1
bench: {pp: 8, tg: 4}
"""


def rows(**changed) -> list[dict]:
    """Rows of both cases; `changed` is the q8_0 one's."""
    return [row("bf16", model="rand:tiny"), row("q8_0", model="rand:tiny", **changed)]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Measurements of the sweeps of base and of this tree, and the slowdown of this tree."""
    found = {"base": rows(), "now": rows(), "slower": 0.0, "turns": None}

    def measure_suite(tree, suite):
        return list(map(Record.from_json, found["base" if tree.name == "base" else "now"]))

    def launch_all(groups, enough, *, least, budget_s):
        names, turns = [subject.name for group in groups for subject in group], least
        one_sided = len(groups[0][0].sides) == 1

        def of(turns):
            made = {name: launches(turns, i, slower=found["slower"]) for i, name in enumerate(names)}
            if one_sided:
                made = {name: list(map(second_side, of)) for name, of in made.items()}
            return made

        while budget_s and not enough(of(turns)):
            turns += 1
        found["turns"] = turns
        return of(turns)

    for module in (run_module, baseline_module):
        monkeypatch.setattr(module, "measure_suite", measure_suite)
        monkeypatch.setattr(module, "machine", lambda: Machine.from_json(MACHINE))
    monkeypatch.setattr(floors_module, "measure", lambda record: [Record.from_json(floor_row(1e-4))])
    monkeypatch.setattr(baseline_module, "measure", lambda record: [Record.from_json(floor_row(1e-4))])
    monkeypatch.setattr(timed, "launch_all", launch_all)
    monkeypatch.setattr(run_module, "known_suite", lambda tree, suite: suite)
    monkeypatch.setattr(run_module, "check_worker", lambda tree: None)
    monkeypatch.setattr(run_module, "base_tree", lambda ref, cache, say: Tree("base", tmp_path / "python", tmp_path))
    (tmp_path / "small.yaml").write_text(SUITE)
    return found


def second_side(launch: Launch) -> Launch:
    return Launch({phase: [sides[1]] for phase, sides in launch.seconds.items()}, [launch.peak_rss_bytes[1]])


def gate(tmp_path, against: str = "HEAD", say=lambda line: None, **options):
    return run_gate(GateOptions(tmp_path / "small.yaml", against, folder=tmp_path / "runs", **options), say)


def save(tmp_path, rows) -> str:
    file = tmp_path / "base.jsonl"
    file.write_text("".join(json.dumps(found) + "\n" for found in rows))
    return str(file)


def test_nothing_changed_is_green(tmp_path, world):
    result = gate(tmp_path)
    assert not result.is_red and not result.not_checked
    gates = {(check.gate, check.metric) for check in result.checks}
    assert gates >= {("quality", "kld"), ("memory", "weights held"), ("memory", "peak RSS"), ("speed", "tg4")}
    speeds = [check for check in result.checks if check.gate == "speed"]
    assert len(speeds) == 4 and all(check.detectable <= 0.05 for check in speeds)


def test_slow_measurements_are_announced(tmp_path, world):
    lines = []
    gate(tmp_path, say=lines.append)
    assert lines[:2] == [
        "comparing 2 cases with commit HEAD",
        "launching this tree and commit HEAD in turn, for peaks of memory and speed",
    ]


def test_a_slowdown_of_five_percent_is_red(tmp_path, world):
    world["slower"] = 0.05
    result = gate(tmp_path)
    assert result.is_red and {check.gate for check in result.worse} == {"speed"}


def test_a_loss_of_quality_is_red_and_names_the_case(tmp_path, world):
    world["now"] = rows(of=blocks(1, kld=1e-3))
    (worse,) = gate(tmp_path).worse
    assert (worse.case, worse.metric) == ("rand:tiny q8_0", "kld")


def test_a_loss_within_the_noise_floor_is_ignored(tmp_path, world):
    world["now"] = rows(of=blocks(1, kld=5e-5, spread=1e-6))
    assert not gate(tmp_path).is_red
    (tmp_path / "runs" / floors_module.FILE).write_text(json.dumps(floor_row(1e-6)) + "\n")
    assert gate(tmp_path).is_red


def test_reported_or_skipped_cases_are_not_red(tmp_path, world):
    world["slower"] = 0.1
    reported = gate(tmp_path, report=frozenset({"speed"}))
    assert not reported.is_red and "worse" in {check.verdict for check in reported.checks if check.gate == "speed"}
    skipped = gate(tmp_path, skip=frozenset({"speed"}))
    assert {check.gate for check in skipped.checks} == {"quality", "memory"}
    assert skipped.not_checked == ["speed, as asked"]
    with pytest.raises(InputError, match="nothing would be checked"):
        gate(tmp_path, skip=frozenset({"quality", "memory", "speed"}))


def test_a_case_that_fails_now_is_red(tmp_path, world):
    world["now"] = [rows()[0], rows()[1] | {"status": "error", "error": "killed by SIGSEGV", "metrics": None}]
    result = gate(tmp_path)
    assert result.is_red and result.failed == {"rand:tiny q8_0": "killed by SIGSEGV"}


def test_a_case_that_the_base_commit_lacks_is_new_and_no_alarm(tmp_path, world):
    world["base"] = rows()[:1]
    result = gate(tmp_path)
    assert not result.is_red and result.not_checked == ["rand:tiny q8_0: new, commit HEAD has none"]
    assert {check.case for check in result.checks} == {"rand:tiny bf16"}


def test_a_case_that_failed_in_the_base_commit_is_reported(tmp_path, world):
    broken = rows()[1] | {"status": "error", "error": "no room", "metrics": None}
    world["base"] = [rows()[0], broken]
    mended = gate(tmp_path)
    assert mended.not_checked == ["rand:tiny q8_0: it failed in commit HEAD: no room"] and not mended.is_red
    world["now"] = [rows()[0], broken]
    assert not gate(tmp_path).is_red, "it did not run before either"


def test_a_file_without_launches_gates_quality_and_weights(tmp_path, world):
    result = gate(tmp_path, save(tmp_path, rows()))
    assert {check.metric for check in result.checks} == {
        "perplexity",
        "kld",
        "weights stored",
        "weights held",
        "KV per token",
    }
    assert "has no launches" in result.not_checked[0] and not result.is_red


def test_a_saved_baseline_reports_the_peak_and_speed(tmp_path, world):
    file = baseline_module.write_baseline(tmp_path / "small.yaml", tmp_path / "kept", tmp_path / "runs").file
    assert file == tmp_path / "kept" / f"{MACHINE['id']}.jsonl"
    world["slower"], lines = 0.5, []
    result = gate(tmp_path, str(file), lines.append)
    assert lines == [
        f"comparing 2 cases with {file}",
        "launching every case again, for its peak of memory and its speed",
    ]
    reported = {(check.gate, check.metric) for check in result.checks if not check.is_gate}
    assert ("memory", "peak RSS") in reported and "memory" in {check.gate for check in result.checks if check.is_gate}
    assert {check.is_gate for check in result.checks if check.gate == "speed"} == {False} and not result.is_red


def test_another_machine_is_refused_or_limited_to_portable_metrics(tmp_path, world):
    other = MACHINE | {"id": "b" * 12, "cores": 64}
    file = save(tmp_path, [found | {"machine": other} for found in rows(launches=plain(launches(3)))])
    with pytest.raises(InputError, match="another machine: cores 64 there, 2 here"):
        gate(tmp_path, file)
    result = gate(tmp_path, file, any_machine=True)
    assert {check.metric for check in result.checks} == {"perplexity", "kld", "weights stored", "KV per token"}
    assert "cores 64 there" in result.not_checked[0]


def test_peaks_of_another_torch_are_not_compared(tmp_path, world):
    versions = {"qbench": "0.0.9", "torch": "2.12.0"}
    file = save(tmp_path, [found | {"versions": versions} for found in rows(launches=plain(launches(3)))])
    result = gate(tmp_path, file)
    assert "peak RSS" not in {check.metric for check in result.checks}
    assert result.not_checked[0].endswith("ran with torch 2.12.0, not 2.13.0")


def test_a_case_that_the_baseline_lacks_is_reported_before_any_measurement(tmp_path, world):
    world["now"] = None
    with pytest.raises(InputError, match="lacks rand:tiny q8_0"):
        gate(tmp_path, save(tmp_path, rows()[:1]))


def test_suites_have_names(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert suite_file("ci") == suite_file("ci.yaml") == Path("suites/ci.yaml")
    monkeypatch.chdir(tmp_path)
    assert suite_file("ci") == ROOT / "suites" / "ci.yaml"


def test_a_suite_that_is_missing_is_sought_once_in_each_place(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(InputError, match=r"^no suite 'cy': tried cy, suites/cy\.yaml$"):
        suite_file("cy")
    with pytest.raises(InputError, match=r"^no suite 'suites/cy\.yaml': tried suites/cy\.yaml$"):
        suite_file("suites/cy.yaml")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"^no suite 'cy': tried cy, suites/cy.yaml, {ROOT}/suites/cy.yaml$"):
        suite_file("cy")
