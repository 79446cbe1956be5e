"""Input that quantization cannot use: one line that says what to do, exit status 2, and nothing half-written."""

import json

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from support.artifact import write_artifact
from support.damage import edit_hf
from support.memory_source import MemorySource
from support.refused_rows import refused_rows

from qbench.sources import open_source
from quant.artifacts.gguf_vocabulary import BYTE_TOKENS
from quant.source import TokenizerInfo

WINDOWS = ("--samples", "4", "--seq-len", "32")


@pytest.fixture
def refused(qbench, tmp_path, small_model, token_ids):
    """refused(recipe, *argv, says=[...]): the line holds these words, and the folder is as it was before"""

    def check(recipe, *argv, says, model=small_model, out="out"):
        before = sorted(tmp_path.rglob("*"))
        argv = argv or ("--calibration", token_ids, *WINDOWS)
        qbench("quantize", model, "--recipe", recipe, "-o", tmp_path / out, *argv).fails_with(*says)
        assert sorted(tmp_path.rglob("*")) == before

    return check


@pytest.fixture
def recipe_file(tmp_path):
    def write(text):
        path = tmp_path / "recipe.yaml"
        path.write_text(text)
        return path

    return write


def test_a_text_that_the_recipe_does_not_read(qbench, tmp_path, small_model, token_ids):
    argv = ("quantize", small_model, "--recipe", "q4_0", "-o", tmp_path / "m.gguf", "--calibration", token_ids)
    outcome = qbench(*argv)
    assert outcome.status == 0
    assert outcome.err.splitlines() == [
        "warning: recipe q4_0 does not calibrate; --calibration is not read",
        "warning: rows that are not a multiple of a block of q6_k: 1 x q8_0 instead, 8.5 bits per weight, not 6.562",
    ]


def test_a_text_shorter_than_a_window(refused, tmp_path):
    text = tmp_path / "short.txt"
    text.write_text("too short")
    refused("gptq-w4g128", "--calibration", text, model="ref:llama", says=["short.txt", "shorter than one window of"])


def test_token_ids_fewer_than_a_window(refused, token_ids):
    np.save(token_ids, np.arange(255))
    says = ["255 tokens", "shorter than one window of 256", "--seq-len"]
    refused("gptq-w4g128", "--calibration", token_ids, says=says)


def test_a_window_longer_than_the_context(refused, token_ids):
    refused("gptq-w4g128", "--calibration", token_ids, "--seq-len", "300", says=["300 tokens", "context", "256"])


def test_a_tokenizer_that_does_not_match(refused, tmp_path):
    """The tokenizer of a model with a larger vocabulary."""
    model = write_artifact(MemorySource(tokenizer=open_source("ref:llama").tokenizer), tmp_path / "mismatched")
    text = tmp_path / "text.txt"
    text.write_text("words and more words, again and again. " * 200)
    argv = ("--calibration", text, *WINDOWS)
    refused("gptq-w4g128", *argv, model=model, says=["token ids", "vocabulary has 320", "tokenizer"])


@pytest.mark.parametrize("token", [-1, 320])
def test_token_ids_outside_the_vocabulary_are_refused(refused, token_ids, token):
    np.save(token_ids, np.full(300, token))
    refused("imatrix-q4_0", out="out.gguf", says=[str(token), "vocabulary has 320"])


@pytest.mark.parametrize(
    "name, text, says",
    [
        ("ids.jsonl", "[[1, 2], [3]]\n", ["ids.jsonl", "one list"]),
        ("ids.jsonl", '{"tokens": ["a"]}\n', ["whole numbers"]),
        ("ids.jsonl", '{"txt": "a"}\n', ["line 1", '"text"']),
        ("ids.jsonl", "{\n", ["line 1", "not JSON"]),
        ("ids.npy", "no array", ["ids.npy", "cannot read"]),
        ("none/text.txt", None, ["text.txt", "No such file"]),
    ],
    ids=["ragged", "strings", "other keys", "no JSON", "no array", "no file"],
)
def test_a_text_that_cannot_be_read(refused, tmp_path, name, text, says):
    if text is not None:
        (tmp_path / name).write_text(text)
    refused("gptq-w4g128", "--calibration", tmp_path / name, *WINDOWS, says=says)


def test_a_hessian_that_no_damping_helps(refused, qbench, small_model, token_ids, tmp_path):
    """Off the diagonal ten times the values on it: still not positive definite with all of the diagonal's mean
    added.
    """
    stats = tmp_path / "stats.bin"
    argv = ("--calibration", token_ids, *WINDOWS, "--stats", stats)
    made = tmp_path / "made"
    assert qbench("quantize", small_model, "--recipe", "gptq-w4g128", "-o", made, *argv).status == 0
    tensors = load_file(stats)
    for name in [name for name in tensors if name.startswith("1.") and name.endswith(".hessian")]:
        tensors[name] = 10 - 9 * tensors[name].new_tensor(np.eye(len(tensors[name])))
    save_file(tensors, stats)
    refused("gptq-w4g128", *argv, says=["model.layers.1.", "positive definite"])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("recipe", ["q4_0", "rtn-w4g128", "rtn-w8a8", "llm-int8", "gptq-w4g128", "smoothquant-w8a8"])
def test_weights_that_are_no_numbers(refused, small_model, recipe, value):
    name = "model.layers.1.mlp.down_proj.weight"
    edit_hf(small_model, name, lambda weight: weight.__setitem__((3, 5), value))
    says = [str(value)] if recipe == "llm-int8" else ["NaN"]
    refused(recipe, out="out.gguf" if recipe == "q4_0" else "out", says=[f"tensor {name}: ", *says])


@pytest.mark.parametrize("text, says", refused_rows(__file__, "refused_recipes.yaml"))
def test_bad_recipes_are_refused(refused, recipe_file, text, says):
    refused(recipe_file(text), out="out.gguf" if "q8_0" in text or "gguf" in text else "out", says=says)


@pytest.mark.parametrize(
    "text, says",
    [
        ("base: gptq-w4g128-act\npacking: compressed-tensors", "act-order"),
        ("base: rtn-w4g128\nmethod: gptq\npacking: bitsandbytes", "no place for w4g128"),
        ("base: awq-w4g128\nrules: [{match: '*q_proj*', format: w8a8-astatic}]", "needs a scale of its inputs"),
    ],
    ids=["act-order", "packing", "static"],
)
def test_formats_without_a_directory_layout_are_refused_before_the_calibration(refused, recipe_file, text, says):
    refused(recipe_file(text), "--calibration", "not-there.txt", says=[says])


@pytest.fixture
def sentencepiece_model(tmp_path):
    """A model whose tokenizer has the token abc, but not all of its splits as merges: GGUF's "llama" cannot say it."""
    tokens = ["<unk>", *BYTE_TOKENS, "\u2581", "a", "b", "c", "ab", "bc", "abc"]
    merges = [["a", "b"], ["b", "c"], ["ab", "c"]]  # without a + bc
    vocab = {token: number for number, token in enumerate(tokens)}
    bpe = {"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": "<unk>", "byte_fallback": True}
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": False}
    document = {"version": "1.0", "added_tokens": [], "pre_tokenizer": metaspace, "model": bpe}
    tokenizer = TokenizerInfo(json.dumps(document), None, None, False)
    return write_artifact(MemorySource(tokenizer=tokenizer), tmp_path / "sentencepiece")


@pytest.mark.parametrize("argv", [("-o", "out.gguf"), ("-o", "out.gguf", "--dry-run"), ("--dry-run",)], ids=" ".join)
def test_a_tokenizer_that_gguf_cannot_hold_is_refused_before_the_calibration(
    qbench, tmp_path, monkeypatch, sentencepiece_model, argv
):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    never_read = ("--calibration", "not-there.txt")
    outcome = qbench("quantize", sentencepiece_model, "--recipe", "imatrix-q4_0", *argv, *never_read)
    outcome.fails_with("merges are not all splits", "write a Hugging Face directory")
    assert sorted(tmp_path.rglob("*")) == before
    assert qbench("quantize", sentencepiece_model, "--recipe", "rtn-w4g128", "-o", "directory").status == 0


@pytest.mark.parametrize(
    "text, says",
    [
        ("container: gguf\ndefault: iq4_nl\nmethod: gptq", "evenly spaced"),
        ("base: gptq-q4_0\noptions: {act_order: true}", "keeps no order of columns"),
    ],
)
def test_a_format_that_gptq_cannot_round_to_is_refused_before_the_calibration(refused, recipe_file, text, says):
    for argv in ((), ("--dry-run",)):
        refused(recipe_file(text), "--calibration", "not-there.txt", *argv, out="out.gguf", says=["q_proj", says])


def test_experts_that_one_stack_cannot_hold_are_refused_before_the_calibration(refused, recipe_file):
    recipe = recipe_file("base: imatrix-q4_0\nrules: [{match: '*.experts.0.*', format: q8_0}]")
    says = ["stacks tensors of q4_0, q8_0"]
    refused(recipe, "--calibration", "not-there.txt", model="ref:mla-moe", out="out.gguf", says=says)


def test_a_file_where_a_shard_goes_is_refused_before_the_calibration(refused, tmp_path):
    (tmp_path / "out-00001-of-00002.gguf").write_text("a diary")
    argv = ("--calibration", "not-there.txt", "--max-shard-size", "1M")
    refused("imatrix-q4_0", *argv, out="out.gguf", says=["out-00001-of-00002.gguf", "something else"])


@pytest.mark.parametrize("given, says", refused_rows(__file__, "refused_outputs.yaml"))
def test_a_plan_refuses_an_output_that_cannot_be_written(qbench, tmp_path, small_model, token_ids, given, says):
    recipe, out = given
    before = sorted(tmp_path.rglob("*"))
    argv = ("--recipe", recipe, "--dry-run", "-o", f"{tmp_path}/{out}", "--calibration", token_ids, *WINDOWS)
    qbench("quantize", small_model, *argv).fails_with(says)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_plan_is_for_the_container_of_its_output_and_makes_nothing(qbench, tmp_path, small_model):
    before = sorted(tmp_path.rglob("*"))
    for out, vectors in (("out.gguf", "f32"), ("out", "bf16")):
        plan = qbench("quantize", small_model, "--recipe", "bf16", "--dry-run", "--json", "-o", tmp_path / out)
        *lines, _cost = map(json.loads, plan.out.splitlines())
        rows = {row["tensor"]: row["format"] for row in lines}
        assert rows["model.norm.weight"] == vectors
    assert qbench("quantize", small_model, "--recipe", "q8_0", "--dry-run", "-o", f"{tmp_path}/new/").status == 0
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "argv, says",
    [
        (["--stats", "junk.bin"], ["junk.bin", "no file of calibration statistics"]),
        (["--stats", "model"], ["model", "no file of calibration statistics"]),
        (["--stats", "none/stats.bin"], ["folder none", "make it first"]),
        (["--imatrix", "junk.bin"], ["junk.bin"]),
        (["--imatrix", "none.dat"], ["none.dat", "No such file"]),
        (["--imatrix", "junk.bin", "--stats", "stats.bin"], ["--imatrix", "--stats"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_statistics_that_cannot_be_used(refused, tmp_path, token_ids, monkeypatch, argv, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk.bin").write_text("junk")
    refused("imatrix-q4_0", "--calibration", token_ids, *WINDOWS, *argv, out="out.gguf", says=says)


def test_a_folder_that_is_not_there(refused):
    refused("gptq-w4g128", out="none/out", says=["none", "make it first"])


def test_a_plan_names_format_method_and_reason(qbench, small_model, recipe_file, token_ids):
    recipe = recipe_file("base: q8_0\nrules: [{match: '*.layers.0.*up*', format: q4_0, method: gptq}]")
    argv = ("quantize", small_model, "--recipe", recipe, "--dry-run", "--calibration", token_ids, *WINDOWS)
    rows = [json.loads(line) for line in qbench(*argv, "--json").out.splitlines()]
    rows = {row["tensor"]: (row["format"], row["method"], row["reason"]) for row in rows if "tensor" in row}
    assert rows["model.layers.0.mlp.up_proj.weight"] == ("q4_0", "gptq", "rule 1: *.layers.0.*up*")
    assert rows["model.layers.1.mlp.up_proj.weight"][:2] == ("q8_0", "rtn")
    assert rows["model.norm.weight"][:2] == ("f32", None)
    line = next(line for line in qbench(*argv).out.splitlines() if line.startswith("model.layers.0.mlp.up_proj"))
    assert line.split()[2:4] == ["q4_0", "gptq"]
