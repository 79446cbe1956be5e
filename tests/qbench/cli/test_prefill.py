"""--prefill on the command line: the figures that it adds to results, and one line for bad input."""

import json

import pytest

from quant.artifacts.hf_reader import HFSource

ONE_THREAD = ("--threads", "1", "--json")


def test_eval_reports_blocks_and_mass(qbench):
    window = ("--protocol", "windows-512", "--windows", "1")
    row = json.loads(qbench("eval", "ref:llama", "--prefill", "star:128", *window, *ONE_THREAD).out)
    assert row["prefill"] == "star:128"
    assert 0.5 < row["prefill_blocks"] < 1 and 0.5 < row["prefill_mass"] < 1
    dense = json.loads(qbench("eval", "ref:llama", *window, *ONE_THREAD).out)
    assert "prefill" not in dense and dense["perplexity"] != row["perplexity"]


def test_bench_reports_blocks(qbench):
    work = ("-p", "600", "-n", "0", "-r", "1")
    row = json.loads(qbench("bench", "ref:llama", "--prefill", "xattention:0.5", *work, *ONE_THREAD).out)
    assert row["prefill"] == "xattention:0.5"
    assert 0 < row["prefill_blocks"] < 1 and "prefill_mass" not in row


def test_generate_reports_blocks(qbench):
    text = ("--prompt", "one two " * 100, "-n", "2")
    row = json.loads(qbench("generate", "ref:llama", *text, "--prefill", "star:128", *ONE_THREAD).out)
    assert 0 < row["prefill_blocks"] <= 1


def test_engine_reports_blocks(qbench):
    work = ("--requests", "2", "--prompt", "500,600", "--new", "2,3", "--batch", "2", "--rounds", "1")
    row = json.loads(qbench("engine", "ref:llama", "--prefill", "star:128", *work, *ONE_THREAD).out)
    assert row["prefill"] == "star:128" and 0 < row["prefill_blocks"] < 1
    assert all(figures["same_text"] == 1 for figures in row["contenders"].values())


def test_patterns_are_listed(qbench):
    rows = [json.loads(line) for line in qbench("patterns", "--json").out.splitlines()]
    names = {row["prefill"] for row in rows}
    assert {"dense", "star", "segment-state", "minference", "flexprefill", "xattention"} <= names
    assert all(row["usage"].startswith(row["prefill"]) and row["description"].endswith(".") for row in rows)


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["eval", "ref:llama", "--prefill", "flexprefil"], "did you mean 'flexprefill'"),
        (["eval", "ref:mla-moe", "--prefill", "star"], "latent attention"),
        (["bench", "ref:llama", "--prefill", "star", "--kv", "kv-kivi-4"], "encodes several tokens together"),
        (["generate", "ref:llama", "--prefill", "star", "--policy", "h2o:64"], "goes with policy full"),
        (["engine", "ref:llama", "--prefill", "star", "--vs", "llama.cpp"], "--vs llama.cpp has no prefill patterns"),
        (["engine", "ref:llama", "--prefill", "star", "--policy", "h2o:64"], "goes with policy full"),
        (
            ["engine", "ref:llama", "--prefill", "star", "--kv-store", "."],
            "need prefix caching, policy full and prefill",
        ),
        (["engine", "ref:mla-moe", "--prefill", "star"], "latent attention"),
        (["serve", "ref:llama", "--prefill", "star", "--prefill-chunk", "64"], "takes a whole prompt at once"),
        (["breakeven", "ref:llama", "--what", "prefil"], "did you mean 'prefill'"),
        (["breakeven", "ref:mla-moe"], "latent attention"),
        (["breakeven", "ref:llama", "--at", "99999"], "context holds"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_one_line_and_status_2(qbench, arguments, named):
    qbench(*arguments).fails_with(named)


@pytest.mark.parametrize("command", ["generate", "bench", "eval", "engine", "serve", "breakeven", "plan"])
def test_a_decoder_without_causal_attention(qbench, small_model, command, monkeypatch):
    """With a pattern and without one: queries that see later tokens are computed nowhere."""
    config = json.loads((small_model / "config.json").read_text())
    (small_model / "config.json").write_text(json.dumps(config | {"is_causal": False}))
    monkeypatch.setattr(HFSource, "read", lambda *_: pytest.fail("a weight was read"))
    for pattern in ((), ("--prefill", "star:25%")) if command not in ("breakeven", "plan") else ((),):
        qbench(command, small_model, *pattern).fails_with("config.json: is_causal is False: attention is not causal")
