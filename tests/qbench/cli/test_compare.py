"""`qbench compare` as a user runs it."""

import json

import pytest
from support.paired_records import measured_record
from support.sample_records import write_records

RECIPES = {"bf16": {"kld": 1e-4}, "q8_0": {"loss": 1e-5}, "q4_0": {"loss": 0.004}}


@pytest.fixture
def results(tmp_path):
    rows = [measured_record(recipe, seed=seed, **how) for seed, (recipe, how) in enumerate(RECIPES.items())]
    return write_records(tmp_path / "a1b2c3.jsonl", rows)


def test_two_rows(qbench, results):
    words = ("compare", f"{results}:recipe=bf16", ":recipe=q4_0")
    outcome = qbench(*words)
    assert outcome.status == 0 and "| perplexity |" in outcome.out and "| worse " in outcome.out
    row = json.loads(qbench(*words, "--json").out)
    assert (row["a"]["recipe"], row["b"]["recipe"]) == ("bf16", "q4_0")
    cell = next(cell for cell in row["cells"] if cell["metric"] == "perplexity")
    assert cell["verdict"] == "worse" and cell["estimate"]["low"] > 1 and cell["holm_p_value"] < 0.05


def test_a_table_against_a_baseline(qbench, results):
    outcome = qbench("compare", results, "--baseline", "bf16")
    assert outcome.status == 0 and "| q4_0 | worse +0.4" in outcome.out and "would find" in outcome.out
    long = qbench("compare", results, "--baseline", "bf16", "--long").out
    assert long.count("| q4_0 |") == 5 and long.count("| worse ") == 4


def test_two_models_measured_now(qbench, tmp_path):
    model, kept = tmp_path / "m.gguf", tmp_path / "kept.jsonl"
    assert qbench("quantize", "ref:llama", "--recipe", "q4_0", "-o", model).status == 0
    words = ("compare", "ref:llama", model, "--windows", "2", "--keep", kept)
    row = json.loads(qbench(*words, "--json").out)
    cells = {cell["metric"]: cell for cell in row["cells"]}
    assert cells["kld"]["estimate"]["value"] > 1e-3 and cells["size_bytes"]["verdict"] == "better"
    again = json.loads(qbench("compare", f"{kept}:model=ref:llama", f":model={model}", "--json").out)
    assert again["cells"] == row["cells"]


def test_two_models_on_tasks(qbench, tmp_path):
    model = tmp_path / "m.gguf"
    assert qbench("quantize", "ref:llama", "--recipe", "q2_k", "-o", model).status == 0
    words = ("compare", "ref:llama", model, "--tasks", "ref_minimal_pairs", "--limit", "100")
    cell, size = json.loads(qbench(*words, "--json").out)["cells"]
    flips = cell["flips"]
    assert flips["num_items"] == 100 and flips["right_to_wrong"] > flips["wrong_to_right"]
    assert cell["b"] - cell["a"] == pytest.approx((flips["wrong_to_right"] - flips["right_to_wrong"]) / 100)
    assert cell["estimate"]["low"] <= cell["estimate"]["value"] and size["metric"] == "size_bytes"


def test_noise_floor_of_a_model(qbench):
    outcome = qbench("compare", "ref:llama", "--noise-floor", "--windows", "2")
    assert outcome.status == 0 and "| bf16 " in outcome.out and "| floor " in outcome.out


@pytest.mark.parametrize(
    "words, parts",
    [
        (["{}"], ["compared with what"]),
        (["{}:recipe=q4_1", ":recipe=q4_0"], ["no row with recipe=q4_1", "did you mean 'q4_0'"]),
        (["missing.jsonl", "--baseline", "bf16"], ["missing.jsonl", "cannot read"]),
        (["ref:llama", "ref:lama"], ["lama"]),
        (["ref:llama", "{}"], ["is a model"]),
        (["ref:llama", "ref:llama", "--text", "missing.txt"], ["missing.txt"]),
    ],
)
def test_bad_input_is_one_line(qbench, results, words, parts):
    qbench("compare", *[word.format(results) for word in words]).fails_with(*parts)
