"""`qbench mla` on a small model: tables, JSON, records, and refusals."""

import json

import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact

ARGUMENTS = ("--ctx", "16", "--batch", "1", "--tokens", "1,64", "--rounds", "1", "--threads", "1")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    config = small_config("deepseek2", kv_lora_rank=64, qk_rope_head_dim=16)
    path = tmp_path_factory.mktemp("mla") / "model.gguf"
    return str(write_artifact(ArraySource(config, random_weights(config)), path))


def test_a_table_marks_the_plan_of_the_runtime(qbench, model):
    outcome = qbench("mla", model, *ARGUMENTS)
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    assert "1 new, 16 held, batch 1, one layer" in lines
    assert "64 new, 16 held, batch 1, one layer" in lines
    assert sum(line.split()[1:2] == ["*"] for line in lines) == 2, "of each case the runtime takes one"


def test_json_and_records(qbench, model, tmp_path):
    kept = tmp_path / "rows.jsonl"
    outcome = qbench("mla", model, *ARGUMENTS, "--json", "--keep", str(kept), "--kv", "kv-bf16")
    assert outcome.status == 0
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    modes = [row for row in rows if "mode" in row]
    assert len(modes) == 10
    assert {row["kv_format"] for row in modes} == {"kv-bf16"}
    records = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [record["case"]["mode"] for record in records] == [row["mode"] for row in modes]
    assert all(record["case"]["kind"] == "mla" for record in records)


def test_default_lengths_fit_the_context(qbench, model):
    outcome = qbench("mla", model, "--batch", "1", "--rounds", "1", "--threads", "1", "--json", "--mode", "elided")
    assert outcome.status == 0
    rows = [json.loads(line) for line in outcome.out.splitlines() if "mode" in json.loads(line)]
    assert [(row["context"], row["tokens"]) for row in rows] == [(128, 1), (128, 128)]  # of 256


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["ref:llama"], "LlamaForCausalLM has no latent attention"),
        (["nowhere.gguf"], "nowhere.gguf"),
        (["rand:deepseek-v2-lite", "--kv", "kv-f17"], "unknown KV format 'kv-f17'; known are f32"),
        (["rand:deepseek-v2-lite", "--ctx", "999999"], "the model's context holds 163840"),
        (["rand:deepseek-v2-lite", "--device", "abacus"], "device 'abacus'"),
        (["rand:deepseek-v2-lite", "--cpu-time", "--threads", "2"], "count it with --threads 1"),
        (["rand:deepseek-v2-lite", "--batch", "0"], "0 is not in the range"),
        (["ref:mla-moe", "--tokens", "2000"], "the model's context holds 1024"),
        (["--fit", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_bad_input_is_one_line(qbench, arguments, message):
    outcome = qbench("mla", *arguments)
    assert outcome.status == 2
    assert message in outcome.err
    assert not outcome.out
