"""The fixture as users write it, in a pytest of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.artifact import write_artifact
from support.documents import make_record
from support.gate_rows import floor_row

from qbench.gate import fixture, fixture_rows
from qbench.gate.fixture import QbenchGate, within
from qbench.gate.fixture_rows import FixtureRows
from qbench.measure.launch import Launch
from qbench.measure.records.record import Record
from qbench.pytest_plugin import qbench_gate
from qbench.sources import open_source
from quant.errors import InputError
from quant.recipes import get_recipe

REPO = Path(__file__).parents[3]
# The plugin by its name: a checkout that was installed before it had the entry point has it not.
PYTEST = (sys.executable, "-m", "pytest", "-p", "qbench.pytest_plugin", "-p", "no:cacheprovider", "-q")


def run_pytest(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess:
    (folder / "test_gate.py").write_text(test)
    (folder / "pytest.ini").write_text("[pytest]\n")
    env = os.environ | {"PYTHONPATH": str(REPO), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # or it would be there twice
    return subprocess.run([*PYTEST, *options], cwd=folder, env=env, capture_output=True, text=True)


QUALITY = """\
def test_quality(qbench_gate):
    found = qbench_gate.quality({model!r}, reference="ref:llama", windows=3, max_kld={max_kld}, threads=1)
    assert found["perplexity"] < 10
"""


def test_the_fixture_runs_in_a_separate_pytest(tmp_path):
    """Two bits lose 2e-2 nats on every processor; the model against itself loses nothing on some."""
    model = str(write_artifact(open_source("ref:llama"), tmp_path / "q2_k.gguf", recipe=get_recipe("q2_k")))
    test = QUALITY.format(model=model, max_kld=0.1)
    test += QUALITY.format(model=model, max_kld=1e-12).replace("test_quality", "test_too_strict")
    done = run_pytest(tmp_path, test)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "mean KLD is" in done.stdout and "the limit 1e-12" in done.stdout


def test_saving_needs_a_place():
    options = {"qbench_baseline": None, "qbench_save": True}
    request = SimpleNamespace(config=SimpleNamespace(getoption=options.get))
    with pytest.raises(pytest.UsageError, match="--qbench-save appends to --qbench-baseline"):
        qbench_gate.__wrapped__(request)


def test_quality_is_saved_and_then_compared_with(tmp_path, monkeypatch):
    monkeypatch.setattr(fixture_rows, "measure", lambda record: [Record.from_json(floor_row(1e-4))])
    file, how = tmp_path / "base.jsonl", {"reference": "ref:llama", "windows": 3, "threads": 1}
    QbenchGate(file, save=True).quality("ref:llama", **how)
    gate = QbenchGate(file)
    gate.quality("ref:llama", **how)
    with pytest.raises(InputError, match="lacks rand:tiny"):
        FixtureRows(file).like(
            Record.from_json(make_record({"kind": "gate-test", "gate": "memory", "name": "rand:tiny"}, {}))
        )
    other = json.loads(file.read_text().splitlines()[0])
    other["machine"] |= {"id": "another", "cores": 99}
    file.write_text(json.dumps(other) + "\n")
    with pytest.raises(InputError, match="another machine: cores 99 there"):
        gate.quality("ref:llama", **how)


@pytest.fixture
def processes(monkeypatch):
    """Memory and times of fresh processes, in place of starting them."""
    found = {"more": 0}

    def launch_all(groups, enough, *, least, budget_s):
        pages = np.random.default_rng(found["more"]).integers(0, 40, least)
        peaks = [270_000_000 + found["more"] + 4096 * int(page) for page in pages]
        return {"": [Launch({"pp": [[0.01, 0.011]], "tg": [[0.02, 0.021]]}, [peak]) for peak in peaks]}

    monkeypatch.setattr(fixture, "launch_all", launch_all)
    return found


def test_memory_is_saved_and_then_compared_with(tmp_path, processes):
    file = tmp_path / "base.jsonl"
    QbenchGate(file, save=True).memory("rand:tiny")
    processes["more"] = 1 << 20
    QbenchGate(file).memory("rand:tiny")
    processes["more"] = 8 << 20
    with pytest.raises(AssertionError, match="peak RSS of rand:tiny by 3"):
        QbenchGate(file).memory("rand:tiny")


def test_memory_and_speed_have_limits(processes):
    gate = QbenchGate()
    size = gate.memory("rand:tiny")["size_bytes"]
    with pytest.raises(AssertionError, match="bytes of weights"):
        gate.memory("rand:tiny", max_weight_bytes=size - 1)
    with pytest.raises(AssertionError, match="peak RSS of"):
        gate.memory("rand:tiny", max_peak_rss_bytes=1 << 20)
    assert gate.speed("rand:tiny", pp=8, tg=4, min_pp_tok_s=500)["tg_tok_s"] == pytest.approx(4 / 0.0205)
    with pytest.raises(AssertionError, match="tg: 195 tok/s at most, below 200"):
        gate.speed("rand:tiny", pp=8, tg=4, min_tg_tok_s=200)


def test_a_limit_within_the_interval_warns_and_beyond_it_fails():
    within("mean KLD", 0.5, [0.4, 0.6], 0.55)
    with pytest.warns(UserWarning, match="within its interval"):
        within("mean KLD", 0.5, [0.4, 0.6], 0.45)
    with pytest.raises(AssertionError, match=r"0.5 \[0.4, 0.6\], the limit 0.39"):
        within("mean KLD", 0.5, [0.4, 0.6], 0.39)
    with pytest.raises(AssertionError, match="not finite"):
        within("perplexity", None, None, 10.0)
