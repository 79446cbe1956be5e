import json

import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact
from support.documents import read_records
from support.refused_rows import refused_rows
from tokenizers import Tokenizer, models

from qbench.cli.main import COMMANDS


def test_a_plan_as_lines(qbench):
    outcome = qbench("plan", "shape:llama-2-7b", "--kv", "kv-f16", "--memory", "24GB", "--prefill-chunk", "512")
    assert outcome.status == 0 and "524.29 kB each in kv-f16" in outcome.out and "mha* 524.29 kB" in outcome.out
    assert "of 24.00 GB: fits" in outcome.out and "next to the weights: 20,0" in outcome.out


def test_a_plan_as_json(qbench):
    result = json.loads(qbench("plan", "ref:llama", "--recipe", "q4_k_m", "--ctx", "100", "--json").out)
    assert result["total_bytes"] == sum(result[f"{part}_bytes"] for part in ("resident", "kv", "workspace"))
    assert result["recipe"] == "q4_k_m" and result["context"] == 100 and "fits" not in result


def test_a_plan_is_kept(qbench, tmp_path):
    file = tmp_path / "plans.jsonl"
    assert qbench("plan", "ref:llama", "--ctx", "64", "--keep", file).status == 0
    (record,) = read_records(file)
    assert record["case"]["kind"] == "plan" and record["case"]["context"] == 64
    assert record["metrics"]["resident_bytes"] > 0 and "model" not in record["metrics"]


def test_windows_are_reported(qbench):
    assert "see 12% of this KV cache" in qbench("plan", "shape:mistral-7b", "--ctx", "32768").out


def test_a_window_can_be_chosen(qbench):
    """It holds as much whatever the context, so that no number of tokens is left to be counted."""
    size = ("--policy", "window:64", "--memory", "64MiB", "--json")
    short, long = (json.loads(qbench("plan", "ref:llama", "--ctx", context, *size).out) for context in ("512", "1024"))
    assert short["kv_bytes"] == long["kv_bytes"] and (short["cache"], short["policy"]) == ("dynamic", "window:64")
    assert short["kv_tokens"] is None and "window" not in short


@pytest.mark.parametrize(
    "policy, held",
    [("full", "(1 x 512 tokens, "), ("tova:budget=128", "(25% of 1 x 512 tokens, "), ("quest", "(1 x 512 tokens, ")],
)
def test_the_line_of_the_cache_has_the_number_of_kept_tokens(qbench, policy, held):
    out = qbench("plan", "ref:llama", "--policy", policy, "--ctx", "512").out
    (line,) = (line for line in out.splitlines() if line.startswith("KV cache"))
    assert held in line and line.endswith(f"policy {policy})")


def test_bad_input_is_one_line(qbench):
    for argv in (
        ("plan", "shape:lama"),
        ("plan", "ref:llama", "--recipe", "q4_k_x"),
        ("plan", "ref:llama", "--kv", "kv-none"),
        ("plan", "ref:llama", "--ctx", "1025"),
        ("plan", "ref:llama", "--memory", "much"),
        ("plan", "ref:llama", "--cache", "most"),
        ("plan", "ref:llama", "--policy", "window"),
        ("plan", "ref:llama", "--cache", "paged:64"),
        ("plan", "ref:llama", "--cache", "paged", "--measure"),
        ("plan", "ref:llama", "--recipe", "q4_0", "--measure"),
        ("generate", "shape:llama-2-7b", "-p", "x"),
    ):
        outcome = qbench(*argv)
        assert outcome.status == 2 and outcome.err.strip().count("\n") == 0 and not outcome.out, argv


def test_it_is_listed():
    assert list(COMMANDS).index("plan") < list(COMMANDS).index("recommend")


@pytest.mark.parametrize("given, says", refused_rows(__file__, "refused_policies.yaml"))
def test_a_policy_that_the_model_cannot_have(qbench, tmp_path, given, says):
    kind, policy = given
    config = small_config(kind)
    model = write_artifact(ArraySource(config, random_weights(config)), tmp_path / kind)
    qbench("plan", model, "--policy", policy).fails_with(says)


CLUSTER = """
devices: {core: {memory: 1GiB, operations: 1e11, bandwidth: 10GB}}
links: {wire: {latency_us: 20, bandwidth: 1GB}}
hosts: [{devices: {core: 2}, link: wire}]
"""


def test_divisions_for_a_cluster(qbench, tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    argv = ("plan", "rand:tiny", "--cluster", file, "--goal", "latency", "--ctx", "64")
    text = qbench(*argv).out
    assert "device core (given): 1e+11 operations/s, 10.00 GB/s" in text and "nothing here was run" in text
    result = json.loads(qbench(*argv, "--json").out)
    steps = [row["decode"]["total_s"] for row in result["layouts"]]
    assert steps == sorted(steps) and {row["layout"]["tp"] for row in result["layouts"]} == {1, 2}


def test_mistakes_of_a_cluster_are_one_line(qbench, tmp_path):
    good, measured, kept = (tmp_path / f"{name}.yaml" for name in ("good", "measured", "kept"))
    good.write_text(CLUSTER)
    measured.write_text(CLUSTER.replace("latency_us: 20, bandwidth: 1GB", "rates: measured"))
    kept.write_text(CLUSTER.replace("latency_us: 20, bandwidth: 1GB", "rates: rates.jsonl"))
    (tmp_path / "rates.jsonl").write_text("")
    plan = ("plan", "rand:tiny", "--goal", "latency", "--cluster")
    for argv, word in (
        (("plan", "rand:tiny", "--cluster", good), "needs --goal"),
        ((*plan, tmp_path / "none.yaml"), "No such file"),
        ((*plan, good, "--memory", "1GiB"), "leave out --memory"),
        ((*plan, good, "--cache", "paged"), "dynamic, full cache"),
        ((*plan, good, "--measure"), "start them with torchrun"),
        ((*plan, measured), "start ranks with torchrun"),
        ((*plan, kept), "has no rates of ranks"),
        ((*plan, good, "--ctx", "100000"), "a context of 100000"),
    ):
        outcome = qbench(*argv)
        assert outcome.status == 2 and outcome.err.strip().count("\n") == 0 and not outcome.out, argv
        assert word in outcome.err, outcome.err


@pytest.mark.parametrize("recipe", ["q4_0", "rtn-w8"])
def test_a_tokenizer_that_gguf_cannot_hold_is_reported(qbench, tmp_path, recipe):
    folder = tmp_path / "model"
    assert qbench("quantize", "ref:llama", "--recipe", "bf16", "-o", folder).status == 0
    words = {word: number for number, word in enumerate(["[UNK]", *map(chr, range(97, 123))])}
    Tokenizer(models.WordLevel(words, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))
    planned = qbench("plan", folder, "--recipe", recipe)
    refused = qbench("quantize", folder, "--recipe", recipe, "-o", tmp_path / ("m.gguf" if recipe == "q4_0" else "m"))
    assert planned.status == 0 and "weights" in planned.out
    if recipe == "q4_0":
        (line,) = refused.err.splitlines()
        assert refused.status == 2 and "WordLevel" in line
        assert planned.err == f"warning: quantize would refuse this recipe: {line.removeprefix('qbench: ')}\n"
    else:
        assert refused.status == 0 and planned.err == ""


@pytest.mark.parametrize("model", ["shape:llama-2-7b", "rand:tiny", "ref:mla-moe"])
def test_a_model_that_can_be_written_has_no_warning(qbench, model):
    outcome = qbench("plan", model, "--recipe", "q8_0")
    assert outcome.status == 0 and outcome.err == ""
