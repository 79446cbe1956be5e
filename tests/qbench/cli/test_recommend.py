"""`qbench recommend` as a user runs it, on real measurements of the embedded model."""

import json
import shutil
from importlib import import_module
from itertools import islice

import pytest
from support.artifact import write_artifact

from qbench.cli.memory_size import MEMORY_SIZE, enough
from qbench.reference import weights_dir
from qbench.reference.corpus import documents, heldout_text
from qbench.sources import open_source
from quant.recipes import get_recipe


@pytest.mark.parametrize(
    "text, expected",
    [
        ("6GiB", 6 * 2**30),
        ("6GB", 6 * 10**9),
        ("500MB", 500 * 10**6),
        ("500 mb", 500 * 10**6),
        ("1.5gib", 3 * 2**29),
        ("20k", 20_000),
        ("1KiB", 1024),
        ("1234567", 1_234_567),
    ],
)
def test_sizes_are_read_with_their_units(text, expected):
    assert MEMORY_SIZE.convert(text, None, None) == expected


@pytest.mark.parametrize("num_bytes", [1, 999, 1001, 15_743_999, 15_740_000, 6 * 2**30])
def test_advised_memory_is_never_less_than_needed(num_bytes):
    assert 0 <= MEMORY_SIZE.convert(enough(num_bytes), None, None) - num_bytes <= num_bytes / 100


SMALL = ("--recipes", "q8_0,q4_0", "--kv", "f32", "--ctx", "128", "--windows", "1", "--threads", "1")


RUNTIME = 200_000_000


def test_a_second_call_answers_from_kept_measurements(qbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = import_module("qbench.recommendation.recommend")  # the package has a function of that name
    monkeypatch.setattr(module, "runtime_bytes", lambda threads: RUNTIME)  # to the byte, three times
    first = qbench("recommend", "ref:llama", "--memory", "1GB", *SMALL, "--json")
    result = json.loads(first.out)
    assert first.status == 0 and (result["answer"]["recipe"], result["answer"]["kv_format"]) == ("q8_0", "f32")
    (runner_up,) = result["runners_up"]
    assert runner_up["recipe"] == "q4_0" and runner_up["kld"] > result["answer"]["kld"]
    records = (tmp_path / "runs" / "recommend" / "records.jsonl").read_bytes()
    assert result["runtime_bytes"] == result["answer"]["runtime_bytes"] == RUNTIME
    parts = ("runtime_bytes", "resident_bytes", "kv_bytes", "workspace_bytes")
    assert result["answer"]["total_bytes"] == sum(result["answer"][name] for name in parts)
    assert result["answer"]["peak_rss_bytes"] is None
    assert records.count(b"\n") == 2 and (tmp_path / result["answer"]["artifact"]).exists()

    tight = result["answer"]["total_bytes"] - 1  # out by one byte
    second = qbench("recommend", "ref:llama", "--memory", str(tight), *SMALL)
    assert second.status == 0 and second.out.startswith("recommended  q4_0\n")
    assert "\n  q8_0: needs " in second.out and " 1 B too much\n" in second.out

    third = qbench("recommend", "ref:llama", "--memory", "1kB", *SMALL)
    assert third.status == 1 and third.out.startswith("nothing meets this")
    assert f"\n  --memory {enough(runner_up['total_bytes'])}  q4_0\n" in third.out
    assert (tmp_path / "runs" / "recommend" / "records.jsonl").read_bytes() == records


@pytest.mark.parametrize(
    "argv, parts",
    [
        pytest.param(["ref:llama"], ["--memory"], id="no memory"),
        pytest.param(["ref:llama", "--memory", "6 apples"], ["6 apples", "6GiB"], id="no size"),
        pytest.param(["ref:llama", "--memory", "0"], ["'0'"], id="nothing"),
        pytest.param(["ref:lama", "--memory", "1GB"], ["ref:lama", "ref:llama"], id="no model"),
        pytest.param(["rand:tiny", "--memory", "1GB"], ["rand:tiny", "random weights"], id="no quality"),
        pytest.param(["ref:llama", "--memory", "1GB", "--ctx", "9999"], ["9999", "1024"], id="too long"),
        pytest.param(["ref:llama", "--memory", "1GB", "--recipes", "q4_k"], ["q4_k", "q4_k_m"], id="no recipe"),
        pytest.param(["ref:llama", "--memory", "1GB", "--kv", "kv-int9"], ["kv-int9", "kv-int8"], id="no cache"),
        pytest.param(["ref:llama", "--memory", "1GB", "--recipes", "q8_0+kv-int8"], ["q8_0+kv-int8"], id="own cache"),
        pytest.param(["ref:llama", "--memory", "1GB", "--tps", "0"], ["--tps"], id="no speed"),
        pytest.param(["ref:llama", "--memory", "1GB", "--text", "no.txt"], ["no.txt"], id="no text"),
    ],
)
def test_one_line(qbench, tmp_path, monkeypatch, argv, parts):
    monkeypatch.chdir(tmp_path)
    qbench("recommend", *argv).fails_with(*parts)
    assert list(tmp_path.iterdir()) == []


def test_a_model_needs_tokenizer_and_text(qbench, small_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy = shutil.copytree(weights_dir("llama"), tmp_path / "copy")
    qbench("recommend", copy, "--memory", "1GB").fails_with("no text", "--text")
    (tmp_path / "x.txt").write_text("The guard.")
    qbench("recommend", small_model, "--memory", "1GB", "--text", "x.txt").fails_with("tokenizer")
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def own_model(tmp_path):
    """A model that brings no text, and a text to score and another to calibrate on."""
    path = write_artifact(open_source("ref:llama"), tmp_path / "model.gguf", recipe=get_recipe("bf16"))
    text, calibration = tmp_path / "text.txt", tmp_path / "calibration.txt"
    text.write_text(heldout_text(num_chars=60_000), encoding="utf-8")
    calibration.write_text("".join(islice(documents(seed=5), 200)), encoding="utf-8")
    return str(path), str(text), str(calibration)


def recommended(qbench, tmp_path, model, text, *options) -> dict:
    asked = ("recommend", model, "--memory", "2GiB", "--text", text, "--windows", 2, "--kv", "f32")
    outcome = qbench(*asked, "--recipes", "q3_k_m,gptq-q3_k_m", "-o", tmp_path / "run", "--json", *options)
    assert outcome.status in (0, 1), outcome.err
    return json.loads(outcome.out)


def test_a_calibration_text_lets_calibrated_recipes_win(qbench, tmp_path, own_model):
    model, text, calibration = own_model
    found = recommended(qbench, tmp_path, model, text, "--calibration", calibration, "--samples", 8)
    assert found["answer"]["recipe"] == "gptq-q3_k_m"
    without = recommended(qbench, tmp_path, model, text)
    assert without["answer"]["recipe"] == "q3_k_m"
    (other,) = (one for one in without["others"] if one["recipe"] == "gptq-q3_k_m")
    assert "no text is known for this model" in other["why"] and "--calibration" in other["why"]


def test_a_text_that_is_in_the_calibration_text_cannot_choose(qbench, tmp_path, own_model):
    model, text, _ = own_model
    outcome = qbench("recommend", model, "--memory", "2GiB", "--text", text, "--calibration", text)
    assert outcome.status == 2 and "of its long lines are in the calibration text" in outcome.err
