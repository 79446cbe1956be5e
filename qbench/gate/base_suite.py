"""The suite as a base commit can run it: without the recipes that came after it."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml

from qbench.gate.base_commit import Tree
from qbench.run.axes import AXIS
from qbench.sweeps.suite.grid import grid
from qbench.sweeps.suite.load_suite import SECTIONS, load_suite
from qbench.sweeps.suite.rules import Rule
from qbench.sweeps.suite.suite import Suite
from qbench.words.written import real_path
from quant.errors import InputError
from quant.present import present

# Run by the tree's own interpreter; names on stdin, those it does not know on stdout.
ASK = """\
import json, sys
from quant.errors import InputError
from quant.recipes import get_recipe

def is_unknown(name):
    try:
        get_recipe(name)
    except InputError:
        return True

print(json.dumps([name for name in json.load(sys.stdin) if is_unknown(name)]))
"""


def known_suite(tree: Tree, suite: Path) -> Path:
    """The suite itself, or a file in the tree's folder without the recipes that the tree does not know.

    raises   InputError if it knows no recipe of the suite
    """
    loaded = load_suite(real_path(suite))
    unknown = unknown_recipes(tree, loaded.axes["recipe"])
    if not unknown:
        return suite
    left = tuple(recipe for recipe in loaded.axes["recipe"] if recipe not in unknown)
    if not left:
        raise InputError(f"{tree.name} knows none of the suite's recipes: {', '.join(unknown)}")
    tree.folder.mkdir(parents=True, exist_ok=True)
    path = tree.folder / suite.name
    path.write_text(yaml.safe_dump(document_of(with_recipes(loaded, left)), sort_keys=False), encoding="utf-8")
    return path


def unknown_recipes(tree: Tree, recipes: Sequence[str]) -> list[str]:
    """Recipes that the tree's own code refuses; empty if it cannot be asked, as its sweep then reports the error."""
    command = [str(tree.python), "-c", ASK]
    done = subprocess.run(
        command, input=json.dumps(recipes), env=tree.env, capture_output=True, text=True, encoding="utf-8"
    )
    return json.loads(done.stdout) if done.returncode == 0 else []


def with_recipes(suite: Suite, recipes: tuple[str, ...]) -> Suite:
    """The suite with those recipes alone, without the rules that then match nothing."""
    fewer = suite.with_values("recipe", recipes)
    points = list(grid(fewer))
    return replace(fewer, exclude=tuple(rule for rule in suite.exclude if any(map(rule.matches, points))))


def document_of(suite: Suite) -> dict[str, Any]:
    """The document that `build_suite` makes the suite from; valid in any folder, since its files are named from the
    root."""
    given = {one.name: getattr(suite, one.name) for one in fields(suite) if one.name != "axes"}
    usual = {one.name: one.default for one in fields(suite)}
    axes = {present(AXIS[name].key): list(values) for name, values in suite.axes.items()}
    return axes | {name: _plain(name, value) for name, value in given.items() if value != usual[name]}


def _plain(name: str, value: Any) -> Any:
    if name in SECTIONS:
        given = {key: getattr(value, key) for key in value.in_suites}
        return {key: _listed(one) for key, one in given.items() if one not in (None, (), {})}
    if name == "exclude":
        return [_rule(rule) for rule in value]
    return _listed(value)


def _rule(rule: Rule) -> dict[str, list[str] | bool]:
    return {axis: list(patterns) for axis, patterns in rule.axes} | dict.fromkeys(rule.sections, True)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
