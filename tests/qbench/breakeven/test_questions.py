"""The questions about KV formats and 8-bit weights: one answer per alternative, and one line for bad input."""

import json

import pytest
import torch
from click.testing import CliRunner
from support.close import assert_close
from support.memory_source import MemorySource

from qbench.breakeven import Settings, get_question
from qbench.breakeven.kv import scheme_of
from qbench.cli.breakeven import command
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from quant.errors import InputError
from quant.kv.source import KVSource


def answers(*arguments: str) -> list[dict]:
    given = ["ref:llama", "--threads", "1", "--cpu-time", "--rounds", "6", "--json", *arguments]
    result = CliRunner().invoke(command, given, catch_exceptions=False)
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_kv_formats_share_the_weights():
    tokens = torch.randint(320, (1, 40), generator=torch.Generator().manual_seed(0))
    source = MemorySource()
    model = load_model(source)
    kept = model.keeping(scheme_of(source, "kv-int8"))
    assert kept.blocks is model.blocks and kept.kv is not None and model.kv is None
    expected = load_model(KVSource(source, "kv-int8"))
    for each in (kept, expected):
        assert each.new_cache().bytes_per_token < model.new_cache().bytes_per_token
    assert_close(kept(tokens, kept.new_cache(1, 64)), expected(tokens, expected.new_cache(1, 64)))


def test_one_answer_per_kv_format():
    rows = answers("--what", "kv", "--only", "kv-f16,kv-int8", "--at", "16,64")
    assert [row["alternative"] for row in rows] == ["kv-f16", "kv-int8"]
    for row in rows:
        assert row["question"] == "kv" and [point["size"] for point in row["points"]] == [16, 64]
        assert all(point["low"] <= point["ratio"] <= point["high"] for point in row["points"])
    f16, int8 = (row["points"][0]["figures"]["kv_bytes_per_token"] for row in rows)
    assert f16 > int8


def test_eight_bits_against_four():
    (row,) = answers("--what", "w8a8", "--at", "2,1", "--layers", "1")
    assert row["alternative"] == "rtn-w8a8" and row["layers"] == 1
    assert [point["size"] for point in row["points"]] == [1, 2]
    assert all(point["ratio"] > 0 and point["choice"] == "rtn-w8a8" for point in row["points"])


@pytest.mark.parametrize(
    "question, spec, given, named",
    [
        ("kv", "ref:mla-moe", {}, "has latent attention"),
        ("kv", "ref:llama", {"alternatives": ("kv-int9",)}, "unknown KV format"),
        ("kv", "ref:llama", {"alternatives": ("f32",)}, "f32 is the default"),
        ("kv", "ref:llama", {"sizes": (99999,)}, "99999 tokens, but the model's context holds"),
        ("kv", "ref:llama", {"num_layers": 99}, "got 99 to measure"),
        ("w8a8", "ref:llama", {"alternatives": ("rtn-w8a9",)}, "did you mean 'rtn-w8a8'"),
    ],
)
def test_bad_input_is_named(question, spec, given, named):
    with pytest.raises(InputError, match=named):
        list(get_question(question).answers(spec, Settings(RunOptions(threads=1), **given)))


def test_retrieval_policies_read_less_of_a_longer_text():
    infllm = "infllm:budget=100,init=16,local=32,block=16"
    rows = answers("--what", "retrieval", "--only", f"quest:budget=64,dense=0,{infllm}", "--at", "32,200")
    assert [row["alternative"] for row in rows] == ["quest:budget=64,dense=0", infllm]
    for row, budget in zip(rows, (64, 100), strict=True):
        short, long = (point["figures"]["tokens_read"] for point in row["points"])
        assert 32 < short <= 48 < long <= budget


def test_only_retrieval_policies_are_taken_for_retrieval():
    with pytest.raises(InputError, match="h2o:64 is not a retrieval policy"):
        list(get_question("retrieval").answers("ref:llama", Settings(RunOptions(), (64,), ("h2o:64",))))
