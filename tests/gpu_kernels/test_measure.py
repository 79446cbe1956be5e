"""The measuring without the clock: its output, and cases without output."""

import json
from types import SimpleNamespace

import pytest
import torch

from gpu_kernels import measure, measurement
from gpu_kernels.decode import timed_step
from gpu_kernels.dispatch import FAMILIES
from gpu_kernels.measurement import Measurement
from gpu_kernels.proof import machine_peaks, record, timing

MACHINE_PEAKS = {"copy_bytes_s": 4e12, "read_bytes_s": 3e12, "bytes_s": 4e12, "int8_ops_s": 1.5e15, "bf16_ops_s": 8e14}
ABOUT = {"gpu": "pretended GPU", "l2_bytes": 2**10, "time": "now", "versions": {}}


@pytest.fixture
def pretend_gpu(monkeypatch):
    """A machine whose GPU is right and takes 10 us for everything, peers 30; the problems are never run."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(measurement, "compute_capability", lambda _: 90)
    monkeypatch.setattr(measurement, "wrong_apart", lambda *_: [])
    monkeypatch.setattr(measurement, "operand_sets", lambda *_: [])
    monkeypatch.setattr("gpu_kernels.measurement.compile_problems", lambda *_: None)
    monkeypatch.setattr(record, "provenance", lambda commit: ABOUT | {"commit": commit})
    monkeypatch.setattr(machine_peaks, "measure_machine_peaks", lambda device: MACHINE_PEAKS)
    monkeypatch.setattr(timing, "time_interleaved", pretended_times)
    step = {
        "op": "llama_decode",
        "label": "B=1",
        "row": "",
        "ops": 2 * 10**9,
        "num_bytes": 10**9,
        "bound": "bandwidth",
    }
    ways = [step | {"impl": how, "us": us, "samples_us": [us]} for how, us in (("graph", 500.0), ("eager", 1500.0))]
    monkeypatch.setattr(timed_step, "decode_rows", lambda device: ways)


def pretended_times(calls, sets):
    """torch._int_mm is missing, the second tile shape of all is the fastest."""
    names = list(calls)
    took = {name: 10.0 if name.startswith("triton") else 30.0 for name in names} | {names[min(2, len(names) - 1)]: 9.0}
    return {name: [us, us, us + 1] for name, us in took.items() if name != "torch._int_mm"}, {
        name: "RuntimeError: no such product" for name in names if name == "torch._int_mm"
    }


def records(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


def test_without_a_gpu(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert measure.main(["--out", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and "got no CUDA GPU, expected one" in told.err
    assert not list(tmp_path.iterdir())


def test_unknown_op(capsys, tmp_path):
    assert measure.main(["--only", "fft", "--out", str(tmp_path)]) == 2
    assert "got --only 'fft', expected part of one of w8a8_gemm, " in capsys.readouterr().err


def test_wrong_results_are_not_timed(pretend_gpu, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(measurement, "wrong_apart", lambda *_: ["w8a8_gemm M=1"])
    monkeypatch.setattr(machine_peaks, "measure_machine_peaks", lambda *_: pytest.fail("timed"))
    assert measure.main(["--out", str(tmp_path)]) == 1
    assert "wrong, so nothing was timed:\n  w8a8_gemm M=1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_records_have_samples_speeds_and_shares(pretend_gpu, tmp_path):
    for _ in range(2):  # the second run appends
        assert measure.main(["--out", str(tmp_path / "gpu"), "--commit", "abc", "--only", "w8a8_gemm"]) == 0
    rows = records(tmp_path / "gpu" / "gemm.jsonl")
    here = [row for row in rows if row["label"] == "M=4096 N=4096 K=4096 bfloat16"]
    ours, theirs, missing = here[0], here[5], here[-1]
    assert len(here) == 2 * (1 + 3 + 2) and rows.index(ours) == 0
    assert (ours["impl"], ours["us"], ours["samples_us"]) == ("triton", 10.0, [10.0, 10.0, 11.0])
    assert ours["tops"] == pytest.approx(2 * 4096**3 / 10e-6 / 1e12)
    assert ours["share"] == pytest.approx(ours["tops"] * 1e12 / MACHINE_PEAKS["int8_ops_s"])
    assert (ours["schema"], ours["commit"], ours["gpu"], ours["sets"]) == (2, "abc", "pretended GPU", 2)
    assert (missing["impl"], missing["absent"]) == ("torch._int_mm", "RuntimeError: no such product")
    assert "us" not in missing and "tops" not in theirs
    few = next(row for row in rows if row["sizes"]["M"] == 1)
    assert few["bound"] == "bandwidth" and few["share"] == pytest.approx(few["gb_s"] * 1e9 / MACHINE_PEAKS["bytes_s"])


def test_the_eager_step_is_the_graphs_peer(pretend_gpu, tmp_path):
    assert measure.main(["--out", str(tmp_path), "--commit", "abc", "--only", "llama_decode"]) == 0
    graph, eager = records(tmp_path / "decode.jsonl")
    assert (graph["impl"], graph["gb_s"], graph["tops"]) == ("graph", 2000.0, 4.0)
    assert graph["share"] == pytest.approx(2e12 / MACHINE_PEAKS["bytes_s"]) and graph["commit"] == "abc"
    assert eager["ours_times_as_fast"] == 3.0 and "share" not in eager


def test_budget_leaves_out_the_rest_and_names_it(pretend_gpu, monkeypatch, capsys, tmp_path):
    times = iter(range(10, 10**6, 10))
    monkeypatch.setattr(Measurement, "elapsed", lambda self: next(times))
    assert measure.main(["--out", str(tmp_path), "--budget", "200"]) == 0
    assert {path.stem for path in tmp_path.iterdir()} == {*FAMILIES, "decode"}  # each op's first problem comes first
    told = capsys.readouterr().out
    assert "left out after 200 s: " in told and "; w8a8_gemm M=64 N=8192 K=8192 bfloat16" in told


def test_choose_writes_the_fastest_of_each_row(pretend_gpu, tmp_path):
    configs = tmp_path / "configs"
    configs.mkdir()
    path = configs / "pretended_GPU.json"
    path.write_text(json.dumps({"chosen": {"other": {"row": "kept"}, "w8a8_gemm": {"M<=16": "replaced"}}}))
    asked = ["--out", str(tmp_path), "--commit", "abc", "--only", "w8a8", "--choose", str(configs)]
    assert measure.main(asked) == 0
    kept = json.loads(path.read_text())
    assert kept["made_with"] == "python -m gpu_kernels.measure --choose" and kept["commit"] == "abc"
    assert kept["chosen"]["other"] == {"row": "kept"}
    second = {"M<=16": "16x64x256-g1-p2-w4-s4", "M<=64": "64x32x256-g8-w4-s4", "any M": "128x128x128-g8-w4-s4"}
    assert kept["chosen"]["w8a8_gemm"] == second


@pytest.mark.parametrize("capability, path", [((8, 0), "through integers"), ((9, 0), "instructions")], ids=str)
def test_provenance_names_how_fp8_is_handled(monkeypatch, capability, path):
    gpu = SimpleNamespace(name="pretended", multi_processor_count=1, L2_cache_size=1, total_memory=1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert record.provenance("abc")["fp8"] == path


def test_provenance_needs_a_commit(monkeypatch, tmp_path):
    monkeypatch.setattr(record, "__file__", str(tmp_path / "record.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(RuntimeError, match="pass --commit HASH"):
        record._git("rev-parse", "HEAD")
