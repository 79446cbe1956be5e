"""The Python API gives the numbers of the commands, and `import qbench` stays light."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from support.close import assert_close

import qbench
from quant.errors import InputError


@pytest.fixture(scope="module")
def model():
    return qbench.load("ref:llama", threads=1)


def test_logits_match_the_decoder(model):
    tokens = model.tokens("Once upon a time")
    logits = model.logits("Once upon a time")
    assert logits.shape == (len(tokens), model.tokenizer.vocab_size)
    assert torch.equal(logits, model.model(torch.tensor([tokens]))[0])


def test_greedy_text_follows_the_logits(model):
    prompt = "Once upon a time"
    text = model.generate(prompt, 4)
    tokens = model.tokens(prompt)
    for _ in range(4):
        tokens.append(int(model.logits(tokens)[-1].argmax()))
    assert model.tokenizer.decode(tokens).endswith(text) and text


def test_text_ends_before_a_stop(model):
    whole = model.generate("Once upon a time", 16)
    stop = whole[3:5]
    assert model.generate("Once upon a time", 16, stop=[stop]) == whole[: whole.index(stop)]


def test_too_many_tokens_are_refused(model):
    with pytest.raises(InputError, match="expected 1 to"):
        model.logits([1] * (model.model.config.max_positions + 1))
    with pytest.raises(InputError, match="got 0 tokens"):
        model.logits([])


def test_a_recipe_and_a_kv_format_change_the_logits(model):
    other = qbench.load("ref:llama", recipe="q4_0", kv="kv-int4", threads=1)
    assert not torch.equal(other.logits("Once upon a time"), model.logits("Once upon a time"))


def test_a_prefill_pattern_reaches_the_runtime():
    assert qbench.load("ref:llama", prefill="star:25%", threads=1).options.prefill == "star:25%"


def test_quantize_takes_the_conventional_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gguf, folder = qbench.quantize("ref:llama", "q4_0", threads=1), qbench.quantize("ref:llama", "rtn-w8", threads=1)
    assert gguf.is_file() and gguf.name.endswith("-Q4_0.gguf")
    assert folder.is_dir() and folder.name == "llama-rtn-w8"
    assert qbench.load(str(gguf), threads=1).generate("Once", 2)


def test_evaluate_agrees_with_the_command(capsys):
    from qbench.cli.main import main

    found = qbench.evaluate("ref:llama", recipe="q4_0", reference="ref:llama", windows=2, threads=1)
    arguments = ["eval", "ref:llama", "--recipe", "q4_0", "--reference", "ref:llama", "--windows", "2", "--json"]
    assert main([*arguments, "--threads", "1"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert found.figure("perplexity") == printed["perplexity"] and found.figure("perplexity") > 1
    assert found.to_json()["kld"] == printed["kld"]


def test_compare_gives_a_row_per_metric():
    frame = qbench.compare("ref:llama", "ref:llama-outliers", windows=2, threads=1)
    assert {"perplexity", "kld"} <= {metric.split(" ")[0] for metric in frame["metric"]}
    assert set(frame["a"]) == {"ref:llama"} and set(frame["b"]) == {"ref:llama-outliers"}


def test_bench_measures_both_phases():
    found = qbench.bench("ref:llama", pp=8, tg=2, repetitions=1, threads=1)
    assert found.figure("pp_tok_s") > 0 and found.figure("tg_tok_s") > 0


def test_recommend_takes_memory_in_words(tmp_path):
    with pytest.raises(InputError, match="no amount of memory"):
        qbench.recommend("ref:llama", "much", folder=tmp_path)


def test_sweep_measures_a_suite_and_results_reads_it(tmp_path):
    suite = tmp_path / "tiny.yaml"
    suite.write_text("name: tiny\nmodels: [ref:llama]\nrecipes: [q8_0, q4_0]\neval: {max_windows: 1}\n")
    frame = qbench.sweep(suite, tmp_path / "run")
    assert sorted(frame["recipe"]) == ["q4_0", "q8_0"]
    assert_close(torch.tensor(frame["perplexity"]), torch.tensor(qbench.results(tmp_path / "run")["perplexity"]))


def test_no_module_has_the_name_of_a_function():
    """Its import would put the module in the place of the function."""
    modules = {path.stem for path in Path(qbench.__file__).parent.iterdir()}
    assert not modules & set(qbench.__all__)


def test_importing_is_light_and_shows_only_the_api():
    code = (
        "import sys, qbench; print(sorted(dir(qbench)), [x for x in ('torch', 'pandas', 'rich') if x in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{sorted([*qbench.__all__, '__version__'])} []"


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'quantise'"):
        qbench.quantise  # noqa: B018


def test_results_are_a_table():
    assert isinstance(qbench.results("results/quickstart"), pd.DataFrame)
