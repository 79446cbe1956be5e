"""Every mistake a user can make ends in one line, exit status 2, and nothing half-written."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.refused_rows import refused_rows

from qbench.cli.renamed import VARIABLES
from qbench.reference import weights_dir
from quant.recipes import RECIPES


@pytest.mark.parametrize("line, parts", refused_rows(__file__, "refused_lines.yaml"))
def test_one_line(qbench, tmp_path, monkeypatch, line, parts):
    monkeypatch.chdir(tmp_path)
    qbench(*shlex.split(line)).fails_with(*parts)
    assert list(tmp_path.iterdir()) == []


SPECIAL = [
    "eval ref:llama --text FIFO",
    "eval ref:llama:q8_0 --logits FIFO",
    "quantize ref:llama --recipe FIFO.yaml -o x.gguf",
    "quantize ref:llama --recipe awq-w4g128 --calibration FIFO -o x",
    "quantize ref:llama --recipe awq-w4g128 --calibration FIFO.npy -o x",
    "quantize ref:llama --recipe imatrix-q4_k_m --imatrix FIFO -o x.gguf",
    "inspect FIFO.gguf",
    "serve ref:llama --port 0 --chat-template FIFO",
    "sweep FIFO.yaml",
    "report FIFO",
    "report folder",
    "query 'select 1 from records' --records FIFO",
]


@pytest.mark.parametrize("line", SPECIAL)
def test_a_fifo_in_place_of_a_file(qbench, tmp_path, monkeypatch, line):
    """Nobody writes to it, so an open that waits would never end."""
    monkeypatch.chdir(tmp_path)
    os.mkdir("folder")
    names = ["FIFO", "FIFO.yaml", "FIFO.npy", "FIFO.gguf", "folder/FIFO.jsonl"]
    for name in names:
        os.mkfifo(name)
    qbench(*shlex.split(line)).fails_with("FIFO")
    assert sorted(os.listdir()) == sorted([*names[:4], "folder"])


DIGITS, MORE_DIGITS = "9" * 400, "9" * 5000  # more than a float holds, and than Python reads as a whole number
TOO_LARGE = [
    "generate ref:llama -n 2 --policy window:{}",
    "generate ref:llama -n 2 --policy sinks:4+{}",
    "generate ref:llama -n 2 --policy h2o:{}",
    "generate ref:llama -n 2 --policy h2o:{}GiB",
    "generate ref:llama -n 2 --policy h2o:64,recent={}",
    "generate ref:llama -n 2 --prefill star:{}",
    "generate ref:llama -n {}",
    "generate ref:llama -n 2 --kv-ram {}GiB",
    "serve ref:llama --port 0 --kv-memory {}TiB",
    "serve ref:llama --port 0 --max-batch {}",
    "serve ref:llama --port 0 --request-timeout {}",
    "plan ref:llama --memory {}GiB",
    "plan ref:llama --memory {}%",
    "plan ref:llama --batch {}",
    "plan ref:llama --context {}",
    "search ref:llama --target {}bpw -o x.gguf",
    "search ref:llama --target {}GiB -o x.gguf",
    "search ref:llama --target {}tok/s -o x.gguf",
    "quantize ref:llama --recipe q8_0 --split-max-size {}G -o x.gguf",
    "quantize ref:llama --recipe rtn-w4g{} -o x",
    "sweep s.yaml --limit {}",
    "sweep s.yaml --limit {}min",
    "bench ref:llama -d {}",
    "bench ref:llama --precision {}%",
]


@pytest.mark.parametrize("number", ["99999999999999999999", DIGITS, MORE_DIGITS], ids=["20", "400", "5000"])
@pytest.mark.parametrize("line", TOO_LARGE)
def test_numbers_beyond_every_machine(qbench, tmp_path, monkeypatch, line, number):
    monkeypatch.chdir(tmp_path)
    outcome = qbench(*shlex.split(line.format(number)))
    assert outcome.status == 2 and "internal error" not in outcome.err, outcome
    assert "out of memory" not in outcome.err and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["0x" + "f" * 5000, "1:" * 5000 + "1", "9" * 400, "9223372036854775808"], ids=["hex", "60", "400", "2**63"]
)
def test_numbers_of_any_length_in_yaml(qbench, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(f"base: {text}\n")
    for line in (("quantize", "ref:llama", "--recipe", "r.yaml", "-o", "o.gguf"), ("sweep", "r.yaml")):
        qbench(*line).fails_with("r.yaml: not YAML", "more than 64 bits in line 1")
    assert os.listdir() == ["r.yaml"]


def test_numbers_of_any_length_in_json(qbench, tmp_path):
    model = copy_of_reference(tmp_path)
    config = json.loads((model / "config.json").read_text())
    text = json.dumps(config | {"rope_theta": 0}).replace('"rope_theta": 0', f'"rope_theta": {DIGITS}')
    (model / "config.json").write_text(text)
    qbench("inspect", model).fails_with("config.json: not valid JSON", "a number of 400 digits, expected at most 300")


def test_a_query_of_no_utf8(qbench, tmp_path):
    qbench("query", "select '\udcff'", "--records", tmp_path).fails_with("SQL: not UTF-8 at character 8")


def copy_of_reference(tmp_path):
    return shutil.copytree(weights_dir("llama"), tmp_path / "model")


def truncate(path, keep: float) -> None:
    os.truncate(path, int(path.stat().st_size * keep))


def test_a_tokenizer_that_multiplies_text(qbench, tmp_path):
    model = copy_of_reference(tmp_path)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    grow = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [grow] * 6}
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    line = qbench("generate", model, "--prompt", "aaaa", "-n", "2").fails_with("tokenizer.json", "expected at most 128")
    assert "1e+18 times as long" in line


PANICS = {
    "in a cut": ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"}),
    "in a load": ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
}


@pytest.mark.parametrize("part, value", PANICS.values(), ids=PANICS)
def test_a_panic_of_the_tokenizers_library_prints_one_line(tmp_path, monkeypatch, part, value):
    """Not Rust's report of it, and no backtrace."""
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    model = copy_of_reference(tmp_path)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer[part] = value | ({"invert": False} if part == "pre_tokenizer" else {})
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    command = [sys.executable, "-m", "qbench", "generate", str(model), "--prompt", "a" * 44 + "!", "-n", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    [line] = done.stderr.splitlines()
    words = "the model's tokenizer cannot cut or join this text: " if part == "pre_tokenizer" else f"{model}/tokenizer"
    assert done.returncode == 2 and line.startswith(f"qbench: {words}")


def test_a_model_without_tokenizer_has_no_text(qbench, tmp_path):
    (tmp_path / "x.txt").write_text("words")
    qbench("eval", "rand:tiny", "--text", tmp_path / "x.txt").fails_with("rand:tiny", "tokenizer")
    qbench("generate", "rand:tiny").fails_with("rand:tiny", "tokenizer")


@pytest.mark.parametrize("keep", [0.0, 0.0001, 0.5, 0.9999])
def test_truncated_safetensors(qbench, tmp_path, keep):
    model = copy_of_reference(tmp_path)
    truncate(model / "model.safetensors", keep)
    qbench("quantize", model, "--recipe", "q8_0", "-o", tmp_path / "x.gguf").fails_with("model.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("keep", [0.0, 0.0001, 0.5, 0.9999])
def test_truncated_gguf(qbench, tmp_path, keep):
    path = tmp_path / "m.gguf"
    assert qbench("quantize", "ref:llama", "--recipe", "q8_0", "-o", path).status == 0
    truncate(path, keep)
    qbench("inspect", path).fails_with("m.gguf")


def test_missing_config_key(qbench, tmp_path):
    model = copy_of_reference(tmp_path)
    config = json.loads((model / "config.json").read_text())
    del config["num_hidden_layers"]
    (model / "config.json").write_text(json.dumps(config))
    qbench("generate", model).fails_with("num_hidden_layers")


def test_unknown_architecture(qbench, tmp_path):
    model = copy_of_reference(tmp_path)
    config = json.loads((model / "config.json").read_text()) | {
        "model_type": "mamba",
        "architectures": ["MambaForCausalLM"],
    }
    (model / "config.json").write_text(json.dumps(config))
    qbench("generate", model).fails_with("Mamba", "LlamaForCausalLM")


def test_unknown_suite_key(qbench, tmp_path):
    suite = tmp_path / "s.yaml"
    suite.write_text("name: s\nmodels: [ref:llama]\nrecipe: [q8_0]\n")
    qbench("sweep", suite).fails_with("'recipe'", "recipes")


@pytest.mark.parametrize(
    "line, parts",
    [("name: ../x", ["'../x'", "folder"]), ("name: s\nthreads: 100000", ["100000", "1024"])],
    ids=["name that leaves the folder", "more threads than can run"],
)
def test_suite_that_cannot_run(qbench, tmp_path, line, parts):
    suite = tmp_path / "s.yaml"
    suite.write_text(f"{line}\nmodels: [ref:llama]\nrecipes: [q8_0]\nbench: {{}}\n")
    qbench("sweep", suite, "-o", tmp_path / "run").fails_with(*parts)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "policy, why", [("adakv:budget=96", "share the latent"), ("quest", "keeps latents"), ("sinks:4+60", "sinks stand")]
)
def test_suite_whose_model_cannot_have_a_policy(qbench, tmp_path, policy, why):
    suite = tmp_path / "s.yaml"
    suite.write_text(f"name: s\nmodels: [ref:mla-moe]\nrecipes: [bf16]\npolicies: ['{policy}']\nbench: {{}}\n")
    exclude = f'exclude {{model: "ref:mla-moe", policy: "{policy}"}}'
    qbench("sweep", suite, "-o", tmp_path / "run").fails_with("suite s: ", why, exclude)
    assert not (tmp_path / "run").exists()


def test_prompt_that_is_no_text(qbench):
    qbench("generate", "ref:llama", "--prompt", "\udcff\udcfe").fails_with("UTF-8")


def test_unknown_recipe_key(qbench, tmp_path):
    recipe = tmp_path / "r.yaml"
    recipe.write_text("container: gguf\ndefault: q8_0\nrules: [{match: '*', fromat: q8_0}]\n")
    qbench("quantize", "ref:llama", "--recipe", recipe, "--dry-run").fails_with("fromat", "format")


def test_unwritable_folder(qbench, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    qbench("quantize", "ref:llama", "--recipe", "q8_0", "-o", tmp_path / "file" / "x.gguf").fails_with("file")


def test_an_existing_file_survives_a_failure(qbench, tmp_path):
    kept = tmp_path / "x.gguf"
    kept.write_text("precious")
    model = copy_of_reference(tmp_path)
    truncate(model / "model.safetensors", 0.5)
    qbench("quantize", model, "--recipe", "q8_0", "-o", kept).fails_with("model.safetensors")
    assert kept.read_text() == "precious"


@pytest.mark.parametrize("output", ["m.gguf", "link.gguf"])
def test_a_model_is_not_written_over_itself(qbench, tmp_path, output):
    model = tmp_path / "m.gguf"
    assert qbench("quantize", "ref:llama", "--recipe", "q8_0", "-o", model).status == 0
    (tmp_path / "link.gguf").hardlink_to(model)
    before = model.read_bytes()
    qbench("quantize", model, "--recipe", "q4_0", "-o", tmp_path / output).fails_with(output, "itself")
    assert model.read_bytes() == before


@pytest.mark.parametrize("error", [IndexError, ValueError, RuntimeError, AssertionError])
def test_a_bug_of_ours_shows_no_traceback(qbench, monkeypatch, error):
    """A ValueError or RuntimeError, too: torch and NumPy raise them for errors that no user can mend."""

    def fail():
        raise error("something of ours")

    monkeypatch.setattr("qbench.sources.list_models", fail)
    outcome = qbench("models")
    assert outcome.status == 70 and "Traceback" not in outcome.err and outcome.err.count("\n") == 1
    assert error.__name__ in outcome.err and "something of ours" in outcome.err


def test_an_unknown_instruction_set_is_refused(qbench, monkeypatch):
    monkeypatch.setenv("QBENCH_ISA", "sse9")
    qbench("models").fails_with("QBENCH_ISA=sse9", "scalar")


@pytest.mark.parametrize(
    "name, expected",
    [
        ("QBENCH_LINEAR_PATH", "direct, tile or bf16"),
        ("QBENCH_F16_COMPUTE", "bfloat16 or float32"),
        ("QBENCH_K_QUANT_COMPUTE", "int8x256 or exact"),
    ],
)
def test_an_unknown_switch_of_the_kernels_is_refused(qbench, monkeypatch, name, expected):
    monkeypatch.setenv(name, "fast")
    qbench("models").fails_with(f"{name}=fast: expected {expected}")


def test_a_path_of_tiles_without_tiles(qbench, monkeypatch):
    monkeypatch.setenv("QBENCH_ISA", "scalar")
    monkeypatch.setenv("QBENCH_LINEAR_PATH", "bf16")
    qbench("models").fails_with("QBENCH_LINEAR_PATH=bf16 needs amx; this run has scalar")


@pytest.mark.parametrize("old, new", VARIABLES.items())
def test_a_variable_of_an_earlier_version(qbench, monkeypatch, old, new):
    monkeypatch.setenv(old, "exact")
    qbench("models").fails_with(f"{old} is called {new} now")


def test_an_unknown_recipe_lists_all(qbench):
    outcome = qbench("eval", "ref:llama", "--recipe", "int3")
    outcome.fails_with(*RECIPES)
