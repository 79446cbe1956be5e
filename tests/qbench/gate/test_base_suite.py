"""A suite with names that a base commit does not know."""

import sys
from pathlib import Path

import pytest
import yaml
from support.data import KERNEL_SUITES

from qbench.gate.base_commit import Tree
from qbench.gate.base_suite import document_of, known_suite, unknown_recipes
from qbench.sweeps.suite.load_suite import build_suite, load_suite
from quant.errors import InputError

SUITE = """\
name: small
models: [rand:tiny, ref:llama]
recipes: [bf16, q8_0, mine.yaml]
threads: [1, all]
kv_formats: [f32, kv-int8]
exclude:
  - {recipe: mine.yaml, threads: 1}
  - {model: "rand:*", recipe: [q8_0, bf16], eval: true}
eval: {text: a.txt, max_windows: 3, protocols: [gptq-2048, stride-64]}
tasks: {names: [ref_sums], limit: 4}
bench: {pp: 8, tg: 4, precision: 0.02}
calibration: {samples: 4}
"""


@pytest.fixture
def suite(tmp_path) -> Path:
    (tmp_path / "mine.yaml").write_text("{base: q8_0}")
    (tmp_path / "small.yaml").write_text(SUITE)
    return tmp_path / "small.yaml"


def base(folder: Path, *knows: str) -> Tree:
    """A tree whose get_recipe knows these names."""
    (folder / "quant").mkdir(parents=True)
    (folder / "quant" / "errors.py").write_text("class InputError(ValueError): pass\n")
    (folder / "quant" / "recipes.py").write_text(
        "from quant.errors import InputError\n"
        "def get_recipe(name):\n"
        f"    if not name.endswith({knows!r}): raise InputError(name)\n"
    )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\ncd {folder} && PYTHONPATH={folder} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return Tree("base", python, folder / "kept")


def test_a_suite_is_read_back_as_it_was(suite, tmp_path):
    loaded = load_suite(suite)
    document = yaml.safe_load(yaml.safe_dump(document_of(loaded)))
    assert build_suite(document, "again", Path("/elsewhere")) == loaded


def test_the_suites_of_the_project_are_read_back():
    for path in (Path(__file__).parents[3] / "suites").glob("*.yaml"):
        if path.stem in KERNEL_SUITES:
            continue
        loaded = load_suite(path.resolve())
        assert build_suite(document_of(loaded), "again", Path("/elsewhere")) == loaded


def test_a_base_that_knows_every_recipe_runs_the_file_itself(suite, tmp_path):
    assert known_suite(base(tmp_path / "base", "bf16", "q8_0", "mine.yaml"), suite) == suite


def test_recipes_that_came_later_are_left_out_and_their_rules_with_them(suite, tmp_path):
    tree = base(tmp_path / "base", "bf16", "q8_0")
    fewer = known_suite(tree, suite)
    assert fewer == tree.folder / "small.yaml" and fewer.stem == suite.stem
    loaded = load_suite(fewer)
    assert loaded.axes["recipe"] == ("bf16", "q8_0")
    assert [str(rule) for rule in loaded.exclude] == ["model=rand:*,recipe=q8_0|bf16,eval"]
    assert loaded.eval == load_suite(suite).eval


def test_a_base_that_knows_no_recipe_is_refused(suite, tmp_path):
    with pytest.raises(InputError, match="base knows none of the suite's recipes: bf16, q8_0"):
        known_suite(base(tmp_path / "base", "q2_k"), suite)


def test_this_tree_knows_its_own_and_one_that_cannot_be_asked_is_not_judged(tmp_path):
    this = Tree("this tree", Path(sys.executable), tmp_path)
    assert unknown_recipes(this, ["bf16", "q9_9"]) == ["q9_9"]
    silent = base(tmp_path / "base")
    (tmp_path / "base" / "quant" / "recipes.py").unlink()
    assert unknown_recipes(silent, ["bf16"]) == []
