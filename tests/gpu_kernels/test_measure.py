"""All of the measuring but the clock: what is written, and when nothing is."""

import json

import pytest
import torch

from gpu_kernels import measure, record, timing

CEILINGS = {"copy_bytes_s": 4e12, "int8_ops_s": 1.5e15, "bf16_ops_s": 8e14}


@pytest.fixture
def pretend_gpu(monkeypatch):
    """A machine whose GPU is right and takes 10 us for everything; the tensors are on the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(measure, "DEVICE", "cpu")
    monkeypatch.setattr(measure, "architecture", lambda *_: 90)
    monkeypatch.setattr(measure, "wrong_results", lambda *_: [])
    monkeypatch.setattr(measure, "TOKENS", (1, 512))
    monkeypatch.setattr(measure, "WEIGHTS", ((8, 16),))
    monkeypatch.setattr(record, "provenance", lambda commit: {"gpu": "pretended", "commit": commit, "l2_bytes": 2**10})
    monkeypatch.setattr(timing, "measure_ceilings", lambda device: CEILINGS)
    monkeypatch.setattr(timing, "time_interleaved", lambda calls, sets: {name: [10.0, 9.0, 30.0] for name in calls})


def test_without_a_gpu(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert measure.main(["--out", str(tmp_path / "out.jsonl")]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and "got no CUDA GPU, expected one" in told.err
    assert not list(tmp_path.iterdir())


def test_wrong_results_are_not_timed(pretend_gpu, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(measure, "wrong_results", lambda *_: ["w8a8_gemm M=1"])
    monkeypatch.setattr(timing, "measure_ceilings", lambda *_: pytest.fail("timed"))
    assert measure.main(["--out", str(tmp_path / "out.jsonl")]) == 1
    assert "wrong, so nothing was timed:\n  w8a8_gemm M=1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_records(pretend_gpu, tmp_path):
    out = tmp_path / "gpu" / "out.jsonl"
    for _ in range(2):  # the second run appends
        assert measure.main(["--out", str(out), "--commit", "abc"]) == 0
    records = [json.loads(text) for text in out.read_text().splitlines()]
    assert len(records) == 2 * (3 + 1 + 3 + 1 + 1 + 1)  # M = 1: three tiles, bf16; M = 512: and _int_mm, quantizer
    found = next(r for r in records if r["M"] == 512 and r["impl"] == "torch._int_mm")
    assert found["us"] == 10.0 and found["samples_us"] == [10.0, 9.0, 30.0]
    assert found["tops"] == pytest.approx(2 * 512 * 8 * 16 / 10e-6 / 1e12)
    assert found["share_of_ops"] == pytest.approx(found["tops"] * 1e12 / CEILINGS["int8_ops_s"])
    assert found["share_of_bandwidth"] == pytest.approx(found["gb_s"] * 1e9 / CEILINGS["copy_bytes_s"])
    assert (found["schema"], found["commit"], found["gpu"]) == (1, "abc", "pretended")


def test_unknown_gpu(pretend_gpu, monkeypatch, capsys):
    monkeypatch.setattr(measure, "architecture", lambda *_: 75)
    assert measure.main([]) == 2
    assert capsys.readouterr().err == "measure: w8a8_gemm: got sm_75, expected one of ['sm_80', 'sm_90']\n"


@pytest.mark.parametrize("bytes_per_call, sets", [(1, 400), (100, 4), (399, 2), (10**6, 2)])
def test_sets_exceed_the_l2(bytes_per_call, sets):
    assert timing.num_sets(bytes_per_call, l2_bytes=100) == sets


def test_provenance_needs_a_commit(monkeypatch, tmp_path):
    monkeypatch.setattr(record, "__file__", str(tmp_path / "record.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(RuntimeError, match="pass --commit HASH"):
        record._git("rev-parse", "HEAD")
