"""`qbench search`: the best file, its recipe, and targets that cannot be."""

import json
from dataclasses import replace

import pytest
import yaml

from qbench.cli import keep_path
from qbench.measure.host.commit import code_version
from qbench.measure.records.record import read_files
from qbench.search.kv_choice import KVWanted, kv_sizes
from qbench.search.sites import sites_of
from qbench.sources import open_source
from quant.artifacts.digests import file_bytes
from quant.present import present
from quant.sizes import size_summary

FEW = ("--samples", "4", "--seq-len", "128", "--windows", "3")


def test_the_file_keeps_the_target_and_its_recipe_makes_it_again(qbench, tmp_path, monkeypatch):
    monkeypatch.setattr(keep_path, "code_version", lambda: replace(code_version(), dirty=False))
    best, again, kept = tmp_path / "best.gguf", tmp_path / "again.gguf", tmp_path / "kept.jsonl"
    whole = ("--keep", kept, "--exhaustive", "--json")
    outcome = qbench("search", "ref:llama", "--target", "4.5bpw", "-o", best, *FEW, *whole)
    assert outcome.status == 0, outcome
    result = json.loads(outcome.out)
    found = {each["name"]: each for each in result["candidates"]}
    mix, llama, gptq = found.values()
    assert (mix["name"], llama["name"].split("-")[0], gptq["name"].split("-")[0]) == ("best", "imatrix", "gptq")
    sizes = size_summary(open_source(str(best)).tensors)
    assert sizes.bits_per_weight <= 4.5 and sizes.size_bytes == found[result["chosen"]]["size_bytes"]
    assert mix["kld"]["value"] < llama["kld"]["value"]
    (record,) = read_files([kept])
    assert record.metrics.to_json() == {key: result[key] for key in record.metrics.to_json()}
    assert {"survey", "prediction", "check"} < set(record.metrics.cost.cpu_seconds)
    assert record.metrics.cost.ratio > 1 and record.metrics.cost.gptq_seconds > 0
    assert set(record.metrics.mix) == {site.name for site in sites_of(open_source("ref:llama"))}
    written = yaml.safe_load((tmp_path / "best.yaml").read_text())
    assert written["name"] == result["chosen"]
    assert qbench("quantize", "ref:llama", "--recipe", tmp_path / "best.yaml", "-o", again, *FEW[:4]).status == 0
    assert again.read_bytes() == best.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir() if path.stem[:5] not in ("again", "kept")) == [
        "best.gguf",
        "best.gguf.qbench.json",
        "best.yaml",
    ]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--target", "1bpw"), ["1bpw", "take between 2.644bpw", "and 16.010bpw"]),
        (("--target", "1GiB"), ["1GiB", "take between"]),
        (("--target", "4bpw,5bpw"), ["4bpw,5bpw", "two sizes"]),
        (("--target", "small"), ["'small'", "expected bits per weight or bytes"]),
        (("--target", "4bpw", "--imatrix", "a.gguf"), ["--imatrix", "drop"]),
        (("--target", "4bpw", "--kv", "auto"), ["--kv", "give --context too"]),
        (("--target", "4bpw", "--batch", "2"), ["--batch", "give --context too"]),
        (("--target", "4bpw", "--policy", "auto"), ["--policy", "give --context too"]),
        (("--target", "4bpw", "--ctx", "64", "--policy", "full,h3o"), ["'h3o'", "h2o"]),
        (("--target", "4bpw", "--ctx", "64", "--policy", "window:256"), ["window:256 keeps all of the 64 tokens"]),
        (("--target", "4bpw", "--ctx", "64", "--kv", "kv-int5"), ["'kv-int5'", "kv-int8"]),
        (("--target", "4bpw", "--ctx", "64", "--kv", "kv-fp8-cal"), ["kv-fp8-cal", "take kv-fp8"]),
        (("--target", "9tok/s", "--ctx", "64"), ["9tok/s", "add one"]),
        (("--target", "4bpw", "--ctx", "1024"), ["4bpw", "a file and a KV cache of"]),
    ],
)
def test_refused_before_any_work(qbench, tmp_path, argv, says):
    qbench("search", "ref:llama", *argv, "-o", tmp_path / "best.gguf").fails_with(*says)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--target", "4bpw", "--recipe", "q4_k"), ["--recipe", "drop one"]),
        (("--target", "4bpw", "--resume"), ["--resume", "drop one"]),
        (("--recipe", "q4_k", "--text", "a.txt"), ["qbench search MODEL --target SIZE --text FILE -o OUT"]),
        (("--recipe", "q4_k", "--keep", "a.jsonl"), ["--keep", "--target"]),
        (("--recipe", "q4_k", "--exhaustive"), ["--exhaustive", "--target"]),
        (("--recipe", "q4_k", "--ablation"), ["--ablation", "--target"]),
        (("--recipe", "q4_k", "--ctx", "64"), ["--ctx", "--target"]),
        (("--recipe", "q4_k", "--policy", "auto"), ["--policy", "--target"]),
        ((), ["--recipe", "--target"]),
    ],
)
def test_quantize_leaves_the_options_of_a_search_to_it(qbench, tmp_path, argv, says):
    qbench("quantize", "ref:llama", *argv, "-o", tmp_path / "best.gguf").fails_with(*says)
    assert not list(tmp_path.iterdir())


def test_quantize_with_a_target_is_the_same_search(qbench, tmp_path):
    for command in ("search", "quantize"):
        (tmp_path / command).mkdir()
        few = FEW[:4] if command == "quantize" else FEW
        argv = ("ref:llama", "--target", "1bpw", "--threads", "1", "-o", tmp_path / command / "best.gguf", *few)
        qbench(command, *argv).fails_with("1bpw", "take between 2.644bpw")
    qbench("quantize", "ref:llama", "--target", "4bpw").fails_with("--target needs -o")


def test_impossible_outputs_are_refused(qbench, tmp_path):
    search = ("search", "ref:llama", "--target", "4bpw")
    qbench(*search).fails_with("-o")
    for taken in ("q8_0.gguf", "check.gguf"):
        qbench(*search, "-o", tmp_path / taken).fails_with(taken, "a name like best.gguf")
    qbench(*search, "-o", tmp_path / "best.safetensors").fails_with("best.safetensors", "best.gguf or best")
    qbench(*search, "-o", tmp_path / "q8_0").fails_with("q8_0 names something else")
    qbench(*search, "-o", tmp_path / "no" / "best.gguf").fails_with("does not exist")
    (tmp_path / "best.yaml").write_text("name: a recipe of mine\n")
    qbench(*search, "-o", tmp_path / "best.gguf").fails_with("best.yaml", "something else")
    assert [path.name for path in tmp_path.iterdir()] == ["best.yaml"]


def test_text_that_was_calibrated_on(qbench, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("Every word of this is read twice: " + " ".join(map(str, range(2000))), encoding="utf-8")
    argv = ("--target", "4bpw", "--calibration", text, "--text", text, "-o", tmp_path / "best.gguf", *FEW)
    qbench("search", "ref:llama", *argv).fails_with("is in the calibration text too", "--text")
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.exhaustive("makes three files")
def test_the_kv_cache_counts_in_the_size(qbench, tmp_path):
    best, again = tmp_path / "best.gguf", tmp_path / "again.gguf"
    cache = ("--ctx", "128", "--kv", "kv-int8,kv-int4")
    outcome = qbench("search", "ref:llama", "--target", "2.2MB", *cache, "-o", best, *FEW)
    assert outcome.status == 0, outcome
    written = yaml.safe_load((tmp_path / "best.yaml").read_text())
    assert f"--kv {written['kv']}" in outcome.out and "+" + written["kv"] in outcome.out
    (kv_bytes,) = kv_sizes(open_source("ref:llama"), KVWanted(written["kv"], 128)).values()
    assert best.stat().st_size + kv_bytes <= 2.2e6
    assert qbench("quantize", "ref:llama", "--recipe", tmp_path / "best.yaml", "-o", again, *FEW[:4]).status == 0
    assert again.read_bytes() == best.read_bytes()
    assert open_source(str(best)).config["kv_cache"] == {"format": written["kv"]}


@pytest.mark.exhaustive("makes three files")
def test_a_cache_policy_makes_room_for_weights(qbench, tmp_path):
    best = tmp_path / "best.gguf"
    cache = ("--ctx", "1024", "--kv", "kv-f16", "--policy", "snapkv:budget=25%")
    outcome = qbench("search", "ref:llama", "--target", "2.5MB", *cache, "--json", "-o", best, *FEW)
    assert outcome.status == 0, outcome
    result = json.loads(outcome.out)
    caches = kv_sizes(open_source("ref:llama"), KVWanted("kv-f16", 1024, policies=("snapkv:budget=25%",)))
    assert {(each["policy"], each["kv_bytes"]) for each in result["candidates"]} == {
        ("snapkv:budget=25%", *caches.values())
    }
    assert result["policies"] == "snapkv:budget=25%"
    assert best.stat().st_size + sum(caches.values()) <= 2.5e6
    words = (tmp_path / "best.yaml").read_text().splitlines()
    assert words[0].endswith("--policy snapkv:budget=25%") and "run it with --policy snapkv:budget=25%" in words[1]


@pytest.mark.exhaustive("makes three directories")
def test_a_directory_for_compressed_tensors(qbench, tmp_path):
    """2.5 MB are 4 to 5 bits per weight of the linears: embedding and head stay in bfloat16."""
    best, again = tmp_path / "best-4.5", tmp_path / "again"
    outcome = qbench("search", "ref:llama", "--target", "2.5MB", "--json", "--exhaustive", "-o", best, *FEW)
    assert outcome.status == 0, outcome
    result = json.loads(outcome.out)
    mix, *rivals = result["candidates"]
    assert (mix["name"], result["container"]) == ("best-4.5", "compressed-tensors")
    assert {each["name"].split("-w")[0] for each in rivals} == {"rtn", "gptq"}
    assert present(file_bytes(open_source(str(best)))) <= 2.5e6
    assert qbench("quantize", "ref:llama", "--recipe", tmp_path / "best-4.5.yaml", "-o", again, *FEW[:4]).status == 0
    for name in ("config.json", "model.safetensors"):
        assert (again / name).read_bytes() == (best / name).read_bytes()


@pytest.mark.exhaustive("makes eight files")
def test_an_ablation_makes_each_step_and_claims_no_cost(qbench, tmp_path):
    argv = ("--target", "4bpw", "--ablation", "--json", "-o", tmp_path / "best.gguf", *FEW)
    result = json.loads(qbench("search", "ref:llama", *argv).out)
    names = [each["name"] for each in result["candidates"]]
    assert names[0] == "best" and names[-1] == "best-plain" and names[1].startswith("uniform-")
    assert {"imatrix", "gptq"} < {name.split("-")[0] for name in names}
    assert result["cost"] is None
