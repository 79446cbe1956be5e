"""Every mistake a user can make ends in one line, exit status 2, and nothing half-written."""

import json
import os
import shutil

import pytest

from qbench.cli.renamed import VARIABLES
from qbench.reference import weights_dir
from quant.recipes import RECIPES


@pytest.mark.parametrize(
    "argv, parts",
    [
        pytest.param(["frobnicate"], ["frobnicate", "quantize", "sweep"], id="unknown command"),
        pytest.param(["eval", "no/such/model"], ["no/such/model", "ref:"], id="no such model"),
        pytest.param(["eval", "ref:lama"], ["ref:lama", "ref:llama"], id="unknown reference model"),
        pytest.param(["bench", "rand:huge"], ["'huge'", "llama-3.2-1b"], id="unknown shape"),
        pytest.param(
            ["quantize", "ref:llama", "--recipe", "q4_k_mm", "-o", "x.gguf"],
            ["q4_k_mm", "'q4_k_m'"],
            id="unknown recipe",
        ),
        pytest.param(
            ["quantize", "ref:llama", "--recipe", "q8_0+kv-int9", "-o", "x.gguf"],
            ["kv-int9", "+kv-int8"],
            id="unknown KV suffix",
        ),
        pytest.param(
            ["quantize", "ref:llama", "--recipe", "rtn-w4g128", "-o", "x.gguf"],
            ["rtn-w4g128", "gguf"],
            id="wrong container",
        ),
        pytest.param(["bench", "ref:llama", "--threads", "0"], ["--threads", "0"], id="no threads"),
        pytest.param(["bench", "ref:llama", "--threads", "100000"], ["--threads", "1024"], id="too many threads"),
        pytest.param(["bench", "ref:llama", "-p", "0", "-n", "0"], ["nothing to measure"], id="nothing to bench"),
        pytest.param(["bench", "ref:llama", "-p", "99999"], ["99999", "context"], id="prompt past the context"),
        pytest.param(["eval", "rand:tiny", "--text", "x.txt"], ["x.txt"], id="text that is not there"),
        pytest.param(["sweep", "no-such-suite.yaml"], ["no-such-suite.yaml"], id="no such suite"),
        pytest.param(["sweep", "quickstrat"], ["'quickstrat'", "suites/quickstrat.yaml"], id="no suite of that name"),
        pytest.param(["sweep", "x.yaml", "--limit", "1.5"], ["--limit", "1.5", "50min"], id="half a case"),
        pytest.param(["sweep", "x.yaml", "--limit", "0min"], ["--limit", "0min"], id="no time at all"),
        pytest.param(["report", "no-such-records.jsonl"], ["no-such-records.jsonl"], id="no such records"),
        pytest.param(["models", "ref:llama"], ["--skills"], id="model without a question"),
        pytest.param(["eval", "x", "--products", "exact"], ["--products is called --compute now"], id="old --products"),
        pytest.param(["recommend", "x", "--caches", "f32"], ["--caches is called --kv now"], id="old --caches"),
        pytest.param(["report", "x", "--caches"], ["--caches is called --cache-table now"], id="old flag --caches"),
        pytest.param(["sweep", "x.yaml", "--plan"], ["--plan is called --dry-run now"], id="old sweep --plan"),
        pytest.param(["quantize", "x", "--recipe", "q8_0", "--plan"], ["--dry-run now"], id="old quantize --plan"),
        pytest.param(
            ["quantize", "x", "--recipe", "bf16", "--length", "9"], ["is called --seq-len now"], id="old --length"
        ),
        pytest.param(["mla", "--plan", "elided"], ["--plan is called --mode now"], id="old mla --plan"),
        pytest.param(["serve", "x", "--memory", "1GiB"], ["--memory is called --kv-memory now"], id="old --memory"),
        pytest.param(["engine", "x", "--kv-disk", "1GiB"], ["is called --kv-store-size now"], id="old --kv-disk"),
        pytest.param(["breakeven"], ["MODEL is missing"], id="breakeven of no model"),
        pytest.param(["plan", "x", "--cache", "window:64"], ["is a policy now: window:64"], id="policy as a cache"),
        pytest.param(
            ["eval", "ref:llama", "--attention", "sdap"], ["--attention", "did you mean 'sdpa'"], id="unknown attention"
        ),
        pytest.param(
            ["bench", "ref:llama", "--attention", "triton"],
            ["triton is not on device cpu", "textbook, sdpa, kernel"],
            id="attention of another device",
        ),
        pytest.param(
            ["generate", "ref:llama", "--attention", "sdpa", "--policy", "tova:64"],
            ["tova:64 reads attention weights", "choose textbook or kernel"],
            id="attention that returns no weights",
        ),
        pytest.param(
            ["plan", "ref:llama", "--attention", "kernel", "--cache", "none"],
            ["cache none attends in torch", "textbook or sdpa"],
            id="attention without its cache",
        ),
        pytest.param(
            ["eval", "ref:mla-moe", "--attention", "textbook", "--recipe", "q4_k_m"],
            ["DeepseekV2ForCausalLM has latent attention", "`qbench mla`"],
            id="attention that the model has not",
        ),
        pytest.param(
            ["plan", "ref:llama", "--policy", "quest:budget=47"],
            ["budget 47: policy quest needs at least 48 tokens"],
            id="budget below three pages",
        ),
        pytest.param(["plan", "x", "--prefill", "star:25%"], ["--prefill PATTERN is an option of"], id="plan star"),
        pytest.param(["plan", "x", "--cache-kind", "paged"], ["is called --cache now"], id="old --cache-kind"),
        pytest.param(["eval", "x", "--compute", "auto"], ["auto", "fast"], id="old auto"),
        pytest.param(
            ["eval", "ref:llama", "--compute", "fp32"], ["--compute", "exact", "float32"], id="unknown compute"
        ),
        pytest.param(
            ["gate", "--suite", "ci", "--baseline", "HEAD", "--comment", "no/c.md"],
            ["no/c.md", "no folder no"],
            id="gate's comment without its folder",
        ),
        pytest.param(
            ["gate", "--suite", "ci", "--baseline", "HEAD", "--keep", "/dev/null/x.jsonl"],
            ["/dev/null/x.jsonl", "no folder"],
            id="gate's records below a file",
        ),
        pytest.param(
            ["gate", "--suite", "ci", "--save", "/dev/null/x.jsonl"],
            ["/dev/null/x.jsonl", "no folder"],
            id="a baseline below a file",
        ),
    ],
)
def test_one_line(qbench, tmp_path, monkeypatch, argv, parts):
    monkeypatch.chdir(tmp_path)
    qbench(*argv).fails_with(*parts)
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
