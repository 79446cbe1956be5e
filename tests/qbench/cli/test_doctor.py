"""`qbench doctor`: its table, its findings and its exit status."""

import ctypes
import json

import pytest
from support.damage import edit_gguf, edit_json

UP = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def artifact(qbench, small_model, tmp_path):
    path = tmp_path / "made.gguf"
    assert qbench("quantize", small_model, "--recipe", "q4_0", "-o", path).status == 0
    return path


def test_a_healthy_artifact(qbench, artifact):
    outcome = qbench("doctor", artifact)
    assert outcome.status == 0 and outcome.out.splitlines()[-1] == "healthy"
    row = next(line for line in outcome.out.splitlines() if line.startswith(UP))
    assert "q4_0" in row and float(row.split()[2]) > 15, "SQNR in dB"


def test_as_json(qbench, artifact):
    examined = json.loads(qbench("doctor", artifact, "--json").out)
    assert examined["healthy"] and examined["findings"] == [] and len(examined["tensors"]) == 21
    assert {"name", "format", "sqnr_db", "saturation", "scale_min", "scale_max"} <= examined["tensors"][0].keys()


def test_a_finding_ends_in_1(qbench, artifact):
    edit_gguf(artifact, "blk.1.ffn_up.weight", "u1", lambda rows: rows[3].__setitem__(5, rows[3, 5] ^ 1))
    outcome = qbench("doctor", artifact)
    assert (outcome.status, outcome.err) == (1, "")
    assert outcome.out.splitlines()[-2].startswith(f"hash: {UP}: ") and outcome.out.splitlines()[-1] == "1 finding"
    examined = qbench("doctor", artifact, "--json")
    assert examined.status == 1 and json.loads(examined.out)["findings"][0]["where"] == UP


def test_a_source_that_is_named(qbench, artifact, small_model):
    artifact.with_name("made.gguf.qbench.json").unlink()
    assert "sqnr: n/a" in qbench("doctor", artifact).out
    assert "sqnr: n/a" not in qbench("doctor", artifact, "--source", small_model).out
    qbench("doctor", artifact, "--source", "ref:llama").fails_with("ref:llama", "shape")


@pytest.mark.parametrize("ftype", ["Q4_K_M", "Q2_K", "IQ4_XS", "Q4_0"])
def test_files_that_llama_cpp_made_are_healthy(qbench, tmp_path, ftype):
    """Files without a manifest, each tensor compared with the model that it was made from."""
    llama_cpp = pytest.importorskip("llama_cpp")
    (tmp_path / "f32.yaml").write_text("container: gguf\ndefault: f32\n")
    full, made = tmp_path / "f32.gguf", tmp_path / "made.gguf"
    assert qbench("quantize", "ref:llama", "--recipe", tmp_path / "f32.yaml", "-o", full).status == 0
    params = llama_cpp.llama_model_quantize_default_params()
    params.nthread, params.ftype = 1, getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{ftype}")
    assert llama_cpp.llama_model_quantize(bytes(full), bytes(made), ctypes.byref(params)) == 0
    examined = json.loads(qbench("doctor", made, "--source", "ref:llama", "--json").out)
    assert examined["findings"] == [] and {"hash", "files", "manifest", "expert coverage"} == examined["skipped"].keys()


def test_experts_of_a_calibration(qbench, tmp_path):
    """Counts of a real run; an expert that hardly got a token is reported."""
    path = tmp_path / "moe.gguf"
    argv = ("--samples", "4", "--seq-len", "64", "--min-expert-tokens", "16")
    assert qbench("quantize", "rand:tiny-moe", "--recipe", "imatrix-q4_0", "-o", path, *argv).status == 0
    outcome = qbench("doctor", path)
    assert outcome.status == 0 and "expert coverage" not in outcome.out, outcome.out

    def forget(manifest):
        manifest["calibration"]["experts"]["1"]["tokens"][2] = 0

    edit_json(tmp_path / "moe.gguf.qbench.json", forget)
    outcome = qbench("doctor", path)
    assert outcome.status == 1 and "expert coverage: layer 1, expert 2" in outcome.out
    assert sum("experts.{}.up_proj" in line for line in outcome.out.splitlines()) == 2, "one row for all experts"


def test_a_file_without_a_model_is_refused(qbench, tmp_path):
    qbench("doctor", tmp_path / "none.gguf").fails_with("none.gguf", "not there")
    qbench("doctor", tmp_path).fails_with("config.json")
