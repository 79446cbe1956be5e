"""`qbench tune`: measure, show and forget."""

import json

import pytest

import cpu_kernels
from qbench.measure import tuning
from qbench.measure.tuning import LinearSwitch
from qbench.tune import tune as tuning_run
from qbench.tune.linears import LinearGain
from qbench.tune.tune import LatentGain, ThreadsGain


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    """A cache folder of the test's own, and one format with one turn."""
    monkeypatch.delenv(tuning.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("qbench.tune.turns.ROUNDS", 1)
    monkeypatch.setattr("qbench.tune.turns.TURN_S", 0.0)
    monkeypatch.setattr("qbench.tune.linears.TOKENS", (2, 8))
    monkeypatch.setattr("qbench.tune.linears.BF16_TOKENS", (40, 64))
    monkeypatch.setattr("qbench.tune.linears.ROWS", 32)
    monkeypatch.setattr(tuning_run, "linears", lambda: [kernel for kernel in LINEARS if kernel.op == "linear_q4_k"])
    monkeypatch.setattr(tuning_run, "busy_share", lambda: 0.0)
    monkeypatch.setattr(tuning_run, "tune_latent", lambda: LatentGain(None, 1.0, 12))
    tuning.tuned.cache_clear()
    yield
    tuning.tuned.cache_clear()
    tuning.use_shipped()


LINEARS = tuning_run.linears()


def test_a_table_is_measured_shown_and_removed(qbench):
    found = json.loads(qbench("tune", "--json").out)
    assert [one["op"] for one in found["linears"]] == ["linear_q4_k"] and not found["skipped"]
    assert found["table"] == json.loads(qbench("tune", "--show", "--json").out)
    file = tuning.tuning_file()
    assert file.exists() and str(file) in qbench("tune", "--forget").out and not file.exists()
    tuning.tuned.cache_clear()
    assert "shipped" in qbench("tune", "--show").out
    lines = qbench("tune").out.splitlines()
    assert lines[0].startswith("table") and lines[-1].startswith("linear_q4_k")
    assert ("bf16 from" in lines[-2]) == (cpu_kernels.chosen_isa("linear_q4_k") == "amx")


def test_time_that_does_not_suffice_leaves_the_rest_as_shipped(qbench, monkeypatch):
    monkeypatch.setattr(tuning_run, "LATENT_SHARE", 0.0)
    assert json.loads(qbench("tune", "--json").out)["skipped"] == ["latent attention"]


def test_bad_input(qbench, monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("a file")
    qbench("tune").fails_with("cannot make this folder")
    qbench("tune", "--show", "--forget").fails_with("give one")
    qbench("tune", "--budget", "0").fails_with("--budget")


def test_a_format_that_would_take_too_long_keeps_its_shipped_points(monkeypatch, qbench):
    """Each takes 50 of 120 seconds: the third would end after 150."""
    now = [0.0]

    def tune_linear(name: str) -> LinearGain:
        now[0] += 50
        shipped = LinearSwitch(name, "scalar", 8, 64)
        return LinearGain(name, shipped, shipped, [], None)

    monkeypatch.setattr(tuning_run, "linears", lambda: LINEARS[:4])
    monkeypatch.setattr(tuning_run, "tune_linear", tune_linear)
    monkeypatch.setattr(tuning_run, "tune_threads", lambda: ThreadsGain({}, 1, 1.0))
    monkeypatch.setattr(tuning_run.time, "perf_counter", lambda: now[0])
    found = tuning_run.tune(120)
    assert found.seconds == 100 and len(found.linears) == 2 and len(found.skipped) == 3
