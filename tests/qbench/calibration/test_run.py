"""From the command line: statistics that are kept, importance matrices, kills, and the manifest."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from support.data import REPO

from qbench.calibration import run
from qbench.cli.main import main
from quant.artifacts import read_manifest
from quant.calibration.live import LiveStatistics
from quant.stage import stage_path

FEW = ("--samples", "4", "--seq-len", "128")


def quantize(model, recipe, out, *options) -> int:
    return main(["quantize", str(model), "--recipe", recipe, "-o", str(out), *FEW, *map(str, options)])


def test_manifest_has_the_settings_of_its_calibration(tmp_path):
    out = tmp_path / "m.gguf"
    assert quantize("ref:llama", "imatrix-q4_k_m", out, "--seed", "7", "--best") == 0
    manifest = read_manifest(out)
    assert manifest.seed == 7 and manifest.options == {"effort": "best"} and manifest.method == "imatrix"
    calibration = manifest.calibration.to_json()
    assert {key: calibration[key] for key in ("text", "samples", "length", "on")} == {
        "text": "generated",
        "samples": 4,
        "length": 128,
        "on": "quantized",
    }
    assert len(calibration["sha256"]) == 64 and manifest.versions["torch"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf", "m.gguf.qbench.json"]


def test_statistics_of_the_original_serve_every_recipe(tmp_path, capsys):
    stats = ("--calibrate-on", "original", "--stats", tmp_path / "s.stats")
    assert quantize("ref:llama", "imatrix-q4_k_m", tmp_path / "a.gguf", *stats) == 0
    written = (tmp_path / "s.stats").read_bytes()
    assert quantize("ref:llama", "imatrix-q4_k_m", tmp_path / "b.gguf", *stats) == 0
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    assert quantize("ref:llama", "gptq-q4_0", tmp_path / "c.gguf", *stats) == 0
    assert quantize("ref:llama", "gptq-q4_0", tmp_path / "d.gguf", "--calibrate-on", "original") == 0
    assert (tmp_path / "c.gguf").read_bytes() == (tmp_path / "d.gguf").read_bytes()
    assert (tmp_path / "s.stats").read_bytes() == written
    capsys.readouterr()
    assert quantize("ref:llama", "imatrix-q4_k_m", tmp_path / "a.gguf", *stats, "--seed", "1") == 2
    assert "statistics of another calibration" in capsys.readouterr().err
    assert quantize("ref:llama-outliers", "imatrix-q4_k_m", tmp_path / "a.gguf", *stats) == 2
    assert "statistics of another model" in capsys.readouterr().err


def test_statistics_hold_the_head_although_the_first_recipe_leaves_it(tmp_path):
    stats = ("--calibrate-on", "original", "--stats", tmp_path / "s.stats")
    assert quantize("ref:llama", "awq-w4g128", tmp_path / "a", *stats) == 0
    assert quantize("ref:llama", "gptq-q4_0", tmp_path / "b.gguf", *stats) == 0
    assert quantize("ref:llama", "gptq-q4_0", tmp_path / "c.gguf", "--calibrate-on", "original") == 0
    assert (tmp_path / "b.gguf").read_bytes() == (tmp_path / "c.gguf").read_bytes()


def test_statistics_behind_quantized_layers_serve_only_their_recipe(tmp_path, capsys):
    stats = ("--stats", tmp_path / "s.stats")
    assert quantize("ref:llama", "imatrix-q4_0", tmp_path / "a.gguf", *stats) == 0
    assert quantize("ref:llama", "imatrix-q4_0", tmp_path / "b.gguf", *stats) == 0
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    assert quantize("ref:llama", "imatrix-q5_0", tmp_path / "a.gguf", *stats) == 2
    assert "of another recipe" in (line := capsys.readouterr().err) and "--calibrate-on original" in line


def test_a_file_without_statistics_is_left_untouched(tmp_path, capsys):
    (tmp_path / "diary.txt").write_text("mine")
    assert quantize("ref:llama", "imatrix-q4_0", tmp_path / "a.gguf", "--stats", tmp_path / "diary.txt") == 2
    assert "no file of calibration statistics" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["diary.txt"]


@pytest.mark.parametrize(
    "name, words", [("notes.gguf", "is something else"), ("no/m.gguf", "does not exist; make it first")]
)
def test_a_place_that_is_refused_is_refused_before_calibration(tmp_path, capsys, monkeypatch, name, words):
    (tmp_path / "notes.gguf").write_text("mine")
    monkeypatch.setattr(LiveStatistics, "begin", lambda *args: pytest.fail("calibrated"))
    assert quantize("ref:llama", "imatrix-q4_0", tmp_path / name) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.gguf"]


@pytest.mark.parametrize("name", ["m.gguf", "m.dat"])
def test_an_importance_matrix_instead_of_text(tmp_path, capsys, name):
    from qbench.sources import open_source
    from quant.artifacts.imatrix import write_imatrix
    from quant.recipes.roles import is_decoder_linear

    source, path = open_source("ref:llama"), tmp_path / name
    rng = np.random.default_rng(0)
    importance = {
        tensor: rng.random(info.shape[1]).astype(np.float32)
        for tensor, info in source.tensors.items()
        if is_decoder_linear(tensor)
    }
    write_imatrix(path, importance, source, 512)
    assert quantize("ref:llama", "imatrix-q4_0", tmp_path / "a.gguf", "--imatrix", path) == 0
    assert read_manifest(tmp_path / "a.gguf").calibration.by.imatrix == str(path)
    capsys.readouterr()
    assert quantize("ref:llama", "gptq-q4_0", tmp_path / "b.gguf", "--imatrix", path) == 2
    assert "the statistics lack what its method needs (hessian)" in capsys.readouterr().err
    assert quantize("ref:llama", "imatrix-q4_0", tmp_path / "b.gguf", "--imatrix", path, "--stats", "x") == 2
    capsys.readouterr()
    assert quantize("ref:llama", "rot-imatrix-q4_0", tmp_path / "b.gguf", "--imatrix", path) == 2
    assert "rotates the inputs that" in capsys.readouterr().err
    assert not (tmp_path / "b.gguf").exists()


def test_the_importance_matrix_of_a_calibration_comes_back(tmp_path):
    out = ("--export-imatrix", tmp_path / "i.gguf")
    original = ("--calibrate-on", "original")
    assert quantize("ref:llama", "imatrix-q4_k_m", tmp_path / "a.gguf", *original, *out) == 0
    assert quantize("ref:llama", "imatrix-q4_k_m", tmp_path / "b.gguf", "--imatrix", tmp_path / "i.gguf") == 0
    first, second = (read_manifest(tmp_path / name).tensors for name in ("a.gguf", "b.gguf"))
    assert {name: row.sha256 for name, row in first.items()} == {name: row.sha256 for name, row in second.items()}


def test_an_importance_matrix_has_no_ranges_of_keys(tmp_path, capsys):
    (tmp_path / "i.gguf").write_bytes(b"never read")
    assert (
        quantize("ref:llama", "imatrix-q4_k_m+kv-fp8-cal", tmp_path / "m.gguf", "--imatrix", tmp_path / "i.gguf") == 2
    )
    assert "kv-fp8-cal needs the ranges of keys and values" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option, words",
    [
        ("--imatrix", "reads no importance matrix; take one that does"),
        ("--stats", "reads and writes no statistics"),
        ("--export-imatrix", "no importance matrix to export"),
    ],
)
def test_files_that_a_recipe_would_not_look_at(tmp_path, capsys, option, words):
    assert quantize("ref:llama", "q4_k_m", tmp_path / "m.gguf", option, tmp_path / "file") == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# The command, with the patches of `same_code` in this process. It waits for its kill before the last step.
SCRIPT = """
import signal, sys
from qbench.calibration import run
from qbench.cli.main import main
from quant.stage import Stage
run.code_hash = lambda packages: "same"
commit = Stage.commit
def commit_or_wait(stage, *step):
    if stage.num_done == 4:
        signal.pause()
    commit(stage, *step)
Stage.commit = commit_or_wait
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def same_code(monkeypatch):
    """An edit of the code during the test would make the stage another's, as it should everywhere else."""
    monkeypatch.setattr(run, "code_hash", lambda packages: "same")


def start(out, *options) -> subprocess.Popen:
    command = [sys.executable, "-c", SCRIPT, "quantize", "ref:llama", "--recipe", "gptq-q4_0", "-o", out]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, *FEW, *options], cwd=REPO, env=environment, stderr=subprocess.DEVNULL)


def test_sigkill_and_resume_end_in_the_same_bytes(tmp_path, same_code):
    """Killed at whichever moment, several times: the run goes on from its last whole layer."""
    assert quantize("ref:llama", "gptq-q4_0", tmp_path / "whole.gguf") == 0
    out = tmp_path / "killed.gguf"
    state = stage_path(out) / "state.json"
    for layers in (1, 3):
        process = start(out, "--resume")
        while not state.exists() or json.loads(state.read_text())["num_done"] < layers:
            assert process.poll() is None
            time.sleep(0.002)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert quantize("ref:llama", "gptq-q4_0", out, "--resume") == 0
    assert out.read_bytes() == (tmp_path / "whole.gguf").read_bytes()
    assert read_manifest(out) == read_manifest(tmp_path / "whole.gguf")
    assert not stage_path(out).exists()


@pytest.mark.parametrize("option, name", [("--stats", "s.stats"), ("--export-imatrix", "i.gguf")])
def test_statistics_of_half_a_run_are_not_written(tmp_path, capsys, monkeypatch, same_code, option, name):
    out, layer = tmp_path / "m.gguf", LiveStatistics.through

    def interrupted(self, index, *args, **options):
        if index == 2:
            raise KeyboardInterrupt
        return layer(self, index, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(LiveStatistics, "through", interrupted)
        assert quantize("ref:llama", "imatrix-q4_0", out) not in (0, 2)
    assert stage_path(out).exists()
    capsys.readouterr()
    assert quantize("ref:llama", "imatrix-q4_0", out, "--resume", option, tmp_path / name) == 2
    assert "begun without --stats" in capsys.readouterr().err
    assert not (tmp_path / name).exists()
    assert quantize("ref:llama", "imatrix-q4_0", out, "--resume") == 0


def test_resume_of_another_run_is_refused(tmp_path, capsys, same_code):
    out = tmp_path / "m.gguf"
    process = start(out)
    while not (stage_path(out) / "state.json").exists():
        assert process.poll() is None
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert quantize("ref:llama", "gptq-q4_0", out, "--resume", "--seed", "5") == 2
    line = capsys.readouterr().err
    assert "begun with another calibration" in line and "start again without --resume" in line
    assert stage_path(out).exists() and not out.exists()
    assert quantize("ref:llama", "gptq-q4_0", out) == 0
    assert not stage_path(out).exists()
