"""Every mistake a user can make ends in one line, exit status 2, and nothing half-written."""

import json
import os
import shlex
import shutil

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


def copy_of_reference(tmp_path):
    return shutil.copytree(weights_dir("llama"), tmp_path / "model")


def truncate(path, keep: float) -> None:
    os.truncate(path, int(path.stat().st_size * keep))


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


def test_an_instruction_set_that_is_none(qbench, monkeypatch):
    monkeypatch.setenv("QBENCH_ISA", "sse9")
    qbench("models").fails_with("QBENCH_ISA=sse9", "scalar")


@pytest.mark.parametrize(
    "name, expected",
    [
        ("QBENCH_LINEAR_PATH", "direct or tile"),
        ("QBENCH_F16_COMPUTE", "bfloat16 or float32"),
        ("QBENCH_K_QUANT_COMPUTE", "int8x256 or exact"),
    ],
)
def test_a_switch_of_the_kernels_that_is_none(qbench, monkeypatch, name, expected):
    monkeypatch.setenv(name, "fast")
    qbench("models").fails_with(f"{name}=fast: expected {expected}")


@pytest.mark.parametrize("old, new", VARIABLES.items())
def test_a_variable_of_an_earlier_version(qbench, monkeypatch, old, new):
    monkeypatch.setenv(old, "exact")
    qbench("models").fails_with(f"{old} is called {new} now")


def test_every_recipe_is_told(qbench):
    outcome = qbench("eval", "ref:llama", "--recipe", "int3")
    outcome.fails_with(*RECIPES)
