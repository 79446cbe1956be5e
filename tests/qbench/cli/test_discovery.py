"""Commands that show the options there are: recipes, kernels, version, completion."""

import json
import os
import subprocess
import sys

import pytest

from quant.recipes import RECIPES


def recipes(qbench, *argv) -> list[dict]:
    return [json.loads(line) for line in qbench("recipes", *argv, "--json").out.splitlines()]


def test_all_recipes_are_listed(qbench):
    assert [row["recipe"] for row in recipes(qbench)] == list(RECIPES)
    assert all(name in qbench("recipes").out for name in RECIPES)


@pytest.mark.parametrize(
    ("argv", "holds"),
    [
        (["--bits", "4"], lambda row: 4 <= row["bits_per_weight"] < 5),
        (["--bits", "2-3.5"], lambda row: 2 <= row["bits_per_weight"] <= 3.5),
        (["--container", "gptq"], lambda row: row["container"] == "gptq" and "GPTQModel" in row["loaded_by"]),
        (["--calibration"], lambda row: row["calibrated"]),
        (["--no-calibration"], lambda row: not row["calibrated"]),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else "",
)
def test_filters(qbench, argv, holds):
    kept = recipes(qbench, *argv)
    assert kept == [row for row in recipes(qbench) if holds(row)]
    assert 0 < len(kept) < len(RECIPES)


@pytest.mark.parametrize("argv", [("--bits", "few"), ("--container", "zip"), ("--bits", "20")], ids=str)
def test_filters_that_cannot_be_meant(qbench, argv):
    assert qbench("recipes", *argv).status == 2


def test_info_is_a_screen_and_all_is_a_list(qbench):
    short, long = qbench("info", "--no-measure").out, qbench("info", "--no-measure", "--all").out
    kernels = json.loads(qbench("info", "--no-measure", "--json").out)["kernels"]
    assert len(short.splitlines()) < 40 and "linear_q8_0" in short
    assert sum(line.startswith("kernel  ") for line in long.splitlines()) == len(kernels)


def test_version_has_the_instruction_set(qbench):
    outcome = qbench("--version")
    assert outcome.status == 0 and outcome.out.startswith("qbench ") and "kernels " in outcome.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(qbench, shell):
    assert "_QBENCH_COMPLETE" in qbench("completion", shell).out


def test_completion_completes():
    words = {"_QBENCH_COMPLETE": "bash_complete", "COMP_WORDS": "qbench rec", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "qbench.cli.main"], env={**os.environ, **words}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["plain,recipes", "plain,recommend"]


def test_quantize_names_its_output(qbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = qbench("quantize", "ref:llama", "--recipe", "q4_0")
    (path,) = tmp_path.glob("*.gguf")
    assert outcome.status == 0 and f"no -o: writing to {path.name}" in outcome.err
