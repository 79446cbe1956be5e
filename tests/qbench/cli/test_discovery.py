"""Commands that show the options there are: recipes, kernels, version, completion."""

import io
import json
import os
import subprocess
import sys
import time

import pytest

from qbench import progress
from qbench.cli.info import unit_table
from qbench.cli.progress import progress_bar as progress_of_command
from qbench.progress import progress_bar
from qbench.sources import open_source
from quant.artifacts.output import default_output
from quant.recipes import RECIPES, get_recipe


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
def test_filters_keep_matching_recipes(qbench, argv, holds):
    kept = recipes(qbench, *argv)
    assert kept == [row for row in recipes(qbench) if holds(row)]
    assert 0 < len(kept) < len(RECIPES)


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (("--bits", "few"), "'--bits': got 'few'"),
        (("--container", "guf"), "did you mean 'gguf'?"),
        (("--bits", "20"), ""),
    ],
    ids=str,
)
def test_filters_that_cannot_be_meant(qbench, argv, part):
    outcome = qbench("recipes", *argv)
    assert outcome.status == 2 and part in outcome.err


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (("bnech",), "no command 'bnech'; did you mean 'bench'?"),
        (("help",), "`qbench --help`"),
        (("bench", "ref:llama", "-p", "x"), "'x' is not a valid integer."),
        (("recommend", "ref:llama", "--tps", "x"), "'x' is not a valid number."),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, tuple) else "",
)
def test_a_slip_of_the_finger_gets_a_hint(qbench, argv, part):
    outcome = qbench(*argv)
    assert outcome.status == 2 and part in outcome.err and len(outcome.err.splitlines()) == 1


def test_a_bar_counts_only_if_the_total_is_known(monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # rich then takes stderr for a terminal
    monkeypatch.setattr(sys, "stderr", seen := io.StringIO())
    with progress_bar("read") as update:
        assert "read" in seen.getvalue() and "/?" not in seen.getvalue()
        update(3, 12, "read")
    assert "read" in seen.getvalue() and " 3/12" in seen.getvalue()


def test_long_work_prints_lines_into_a_pipe(monkeypatch, capsys):
    monkeypatch.setattr(progress, "FIRST_LINE_S", 0.2)
    with progress_bar("read") as update:
        pass
    assert capsys.readouterr().err == ""
    with progress_bar("read") as update:
        time.sleep(0.3)
        update(3, 12, "the second file")
        time.sleep(0.4)
        update(4, 12, "read")
        time.sleep(0.8)
    with progress_bar("read"):
        pass
    first, second, third = capsys.readouterr().err.splitlines()
    assert [first, second, third] == ["read, 0 s", "read: the second file 3/12, 1 s", "read 4/12, 1 s"]


def test_other_ranks_print_no_progress(monkeypatch, capsys):
    monkeypatch.setattr(progress, "FIRST_LINE_S", 0.0)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with progress_of_command("read") as update:
        update(1, 2, "read")
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_info_is_a_screen_and_all_is_a_list(qbench):
    short, long = qbench("info", "--no-measure").out, qbench("info", "--no-measure", "--all").out
    info = json.loads(qbench("info", "--no-measure", "--json").out)
    assert len(short.splitlines()) < 40 and "encode_q8_0" in short
    for name in ("kernel", "unit"):
        assert sum(line.startswith(f"{name}  ") for line in long.splitlines()) == len(info[f"{name}s"])


def test_info_groups_formats_by_their_units():
    rows = [
        {"op": op, "format": name, "tokens": tokens, "isa": isa, "path": path}
        for op, name, units in (
            ("linear", "q4_0", (("avx2", "direct"), ("amx", "tile"))),
            ("linear", "f32", (("avx2", "direct"), ("avx2", "direct"))),
            ("linear", "q8_0", (("avx2", "direct"), ("amx", "tile"))),
            ("experts", "q4_0", (("avx2", None), ("amx", None))),
        )
        for tokens, (isa, path) in zip((1, 512), units, strict=True)
    ]
    assert unit_table(rows) == [
        "units:   1 token(s)   512 token(s)  formats",
        "linear   avx2 direct  amx tile      q4_0, q8_0",
        "linear   avx2 direct  avx2 direct   f32",
        "experts  avx2         amx           q4_0",
    ]


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


@pytest.mark.parametrize("recipe", ["q4_0", "gptq-w4g128"])
def test_quantize_without_a_name_replaces_only_its_earlier_output(qbench, tmp_path, monkeypatch, recipe):
    """A file that was downloaded may have the conventional name."""
    monkeypatch.chdir(tmp_path)
    path = default_output(open_source("ref:llama"), get_recipe(recipe))
    if path.suffix == ".gguf":
        path.write_bytes(b"GGUF of somebody else")
    else:
        path.mkdir()
        (path / "notes").write_text("of somebody else")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    outcome = qbench("quantize", "ref:llama", "--recipe", recipe)
    assert outcome.status == 2 and path.name in outcome.err and len(outcome.err.splitlines()) == 1
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
