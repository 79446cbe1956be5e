"""`qbench quantize` into GGUF files: folders, shards, and a model that is not written over."""

import json

import pytest


def out_of(outcome) -> str:
    assert outcome.status == 0, outcome
    return outcome.out


@pytest.fixture
def shards(qbench, tmp_path):
    """rand:tiny as q8_0 in a few shards."""
    command = ("quantize", "rand:tiny", "--recipe", "q8_0", "-o", tmp_path / "m.gguf")
    out_of(qbench(*command, "--max-shard-size", "500K"))
    return sorted(tmp_path.glob("m-*.gguf"))


def contents(folder) -> dict:
    return {path: path.read_bytes() for path in folder.iterdir()}


def test_shards_are_written_and_opened(qbench, shards):
    assert len(shards) > 2
    text = out_of(qbench("inspect", shards[-1], "--json"))
    assert "model.layers.1.mlp.down_proj.weight" in text


def test_shards_are_not_written_over_themselves(qbench, shards):
    before = contents(shards[0].parent)
    for size in ("300K", "1G"):
        command = ("quantize", shards[1], "--recipe", "q4_0", "-o", shards[0].parent / "m.gguf")
        qbench(*command, "--max-shard-size", size).fails_with("m-00001-of-", "is the model itself")
    qbench("quantize", shards[0], "--recipe", "q4_0", "-o", shards[1]).fails_with("name of one shard")
    assert contents(shards[0].parent) == before
    out_of(qbench("quantize", shards[0], "--recipe", "q4_0", "-o", shards[0].parent / "m.gguf"))  # another name


def test_a_second_rounding_is_reported(qbench, shards):
    folder = shards[0].parent
    again = qbench("quantize", shards[0], "--recipe", "q4_0", "-o", folder / "again.gguf")
    assert again.status == 0 and "is quantized already" in again.err and "q8_0" in again.err
    same = qbench("quantize", shards[0], "--recipe", "q8_0", "-o", folder / "same.gguf")
    assert same.status == 0 and "warning" not in same.err


def test_folder_gets_a_file_named_by_the_convention(qbench, tmp_path):
    command = ("quantize", "rand:tiny", "--recipe", "q4_0", "-o", f"{tmp_path}/out/", "--json")
    row = json.loads(out_of(qbench(*command)))
    assert row["artifact"] == f"{tmp_path}/out/tiny-1.4M-v1.0-Q4_0.gguf"
    again = ("quantize", row["artifact"], "--recipe", "q4_0", "-o", f"{tmp_path}/out")
    qbench(*again).fails_with("tiny-1.4M-v1.0-Q4_0.gguf", "is the model itself")


@pytest.mark.parametrize("size", ["0", "2X", "-1", "1.5G", ""])
def test_impossible_sizes_are_refused(qbench, tmp_path, size):
    qbench("quantize", "rand:tiny", "--recipe", "q8_0", "-o", tmp_path / "m.gguf", "--max-shard-size", size).fails_with(
        "no number of bytes", "2G"
    )
    assert list(tmp_path.iterdir()) == []


def test_eval_warns_of_a_second_rounding(qbench, tmp_path):
    made = tmp_path / "q8.gguf"
    assert qbench("quantize", "ref:llama", "--recipe", "q8_0", "-o", made).status == 0
    outcome = qbench("eval", made, "--recipe", "q4_0", "--text", __file__, "--windows", "1")
    assert outcome.status == 0 and outcome.err.count("is quantized already") == 1
    assert "quantized already" not in qbench("eval", made, "--text", __file__, "--windows", "1").err


def test_another_suffix_is_replaced_in_the_advice(qbench, tmp_path):
    out = tmp_path / "x.safetensors"
    qbench("quantize", "ref:llama", "--recipe", "q4_0", "-o", out).fails_with("write to", "x.gguf")


def test_a_warning_about_a_model_is_one_line(qbench, tmp_path, monkeypatch):
    """Files of 2023 do not name their pre-tokenizer."""
    out_of(qbench("quantize", "ref:llama", "--recipe", "q8_0", "-o", tmp_path / "m.gguf"))
    data = (tmp_path / "m.gguf").read_bytes()
    assert b"tokenizer.ggml.pre" in data
    (tmp_path / "old.gguf").write_bytes(data.replace(b"tokenizer.ggml.pre", b"tokenizer.ggml.old"))
    outcome = qbench("inspect", tmp_path / "old.gguf")
    assert outcome.status == 0 and outcome.err.count("warning:") == 1
    assert "does not name its pre-tokenizer" in outcome.err
    (tmp_path / "old.gguf").rename(tmp_path / "a\x1b[31m.gguf")
    assert "\x1b" not in qbench("inspect", tmp_path / "a\x1b[31m.gguf").err, "a name of a file moves no cursor"
