"""A suite from its YAML file, its keys, values and names checked before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from qbench.run.axes import AXIS, SUITE_AXES
from qbench.run.renamed import check_caches, check_key, check_section
from qbench.run.suite_values import fields_of
from qbench.run.work import CalibrationWork, QualityWork, SpeedWork, TasksWork, is_path
from qbench.sweeps.suite.rules import Rule
from qbench.sweeps.suite.suite import MEASURED, Suite
from qbench.sweeps.suite.suite_names import check_model, check_recipe
from quant.errors import InputError
from quant.present import present
from quant.yaml_file import read_yaml

# key -> its class
SECTIONS = {"eval": QualityWork, "tasks": TasksWork, "bench": SpeedWork, "calibration": CalibrationWork}


def load_suite(path: str | Path, models: Sequence[str] = ()) -> Suite:
    """The suite of a YAML file. raises InputError for a file, key, name or value that it cannot use.

    models   that replace the models of the file; empty: keep them
    """
    path = Path(path)
    suite = build_suite(read_yaml(path, "suite"), str(path), path.parent)
    if models:
        suite = suite.with_values("model", tuple(dict.fromkeys(models)))
    check_names(suite)
    return suite


def check_names(suite: Suite) -> None:
    """raises InputError for the first name that no machine knows, with the nearest one"""
    for model in suite.axes["model"]:
        check_model(model)
    for recipe in suite.axes["recipe"]:
        check_recipe(recipe, suite.axes.get("kv_format", ()))
    check_caches(suite.axes.get("cache", ()), f"suite {suite.name}")
    for name, values in suite.axes.items():
        axis = AXIS[name]
        for value in values:
            if axis.check is not None:
                axis.check(value)
            axis.parsed(value)


def build_suite(document: Any, where: str, folder: Path) -> Suite:
    """A suite from parsed YAML; texts and recipe files are looked up from `folder`."""
    if isinstance(document, Mapping) and "cases" in document:
        raise InputError(f"{where}: a suite of kernels, without models; `qbench kernels --suite {where}` times them")
    for key in document if isinstance(document, Mapping) else ():
        check_key(key, where)
    lists = {present(axis.key): (axis.kind, axis.words) for axis in SUITE_AXES}
    known = [one.name for one in fields(Suite) if one.name != "axes"]
    values = fields_of(document, Suite, where, known, lists, sections=(*SECTIONS, "exclude"))
    missing = [name for name in ("name", "models", "recipes") if name not in values]
    if missing:
        raise InputError(f"{where}: {', '.join(missing)} missing; a suite needs name, models and recipes")
    for section, kind in SECTIONS.items():
        if values.get(section) is not None:
            check_section(section, values[section], where)
            given = fields_of(values[section], kind, f"{where}: {section}", kind.in_suites)
            if section == "tasks" and "names" not in given:
                raise InputError(f"{where}: tasks: names missing, a list of tasks such as ref_recall")
            values[section] = _located_files(kind(**given), folder)
    values["recipes"] = tuple(_located(recipe, folder) for recipe in values["recipes"])
    if values.get("texts"):
        values["texts"] = tuple(str(folder / text) if is_path(text) else text for text in values["texts"])
    values["exclude"] = tuple(_rule(item, where, folder) for item in _items(values.get("exclude"), where))
    return Suite.of(**values)


def _items(rules: Any, where: str) -> list:
    if rules is not None and not isinstance(rules, list):
        raise InputError(f"{where}: exclude is {rules!r}, expected a list of rules such as {{recipe: q2_k}}")
    return rules or []


def _rule(item: Any, where: str, folder: Path) -> Rule:
    if isinstance(item, Mapping) and isinstance(item.get("recipe"), str):
        item = {**item, "recipe": _located(item["recipe"], folder)}
    return Rule.of(item, f"{where}: exclude", sections=MEASURED)


def _located_files(settings: Any, folder: Path) -> Any:
    """The text of a section, or the folders of its task files, looked up from `folder`."""
    text = getattr(settings, "text", None)
    if text is not None and is_path(text):
        return replace(settings, text=str(folder / text))
    include = getattr(settings, "include", ())
    return replace(settings, include=tuple(str(folder / one) for one in include)) if include else settings


def _located(recipe: str, folder: Path) -> str:
    return str(folder / recipe) if recipe.endswith((".yaml", ".yml")) else recipe
