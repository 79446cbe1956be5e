"""A suite from its YAML file, its keys, values and names checked before anything runs."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbench.calibration.options import is_file_spec
from qbench.options.cache_spec import check_layout, check_pattern, check_policy
from qbench.options.choices import DEVICES, check_attention_name, check_compute
from qbench.options.rank_layout import RankLayout
from qbench.speed.speed_case import SpeedCase
from qbench.sweeps.suite.axes import ALL, AXES
from qbench.sweeps.suite.memory_limit import check_limit
from qbench.sweeps.suite.renamed import check_caches, check_key, check_section
from qbench.sweeps.suite.rules import Rule
from qbench.sweeps.suite.suite import MEASURED, CalibrationSettings, EvalSettings, Suite
from qbench.sweeps.suite.suite_names import AUTO, ISAS, check_known, check_kv_format, check_model, check_recipe
from qbench.sweeps.suite.suite_values import fields_of
from qbench.tasks.settings import TaskSettings, check_question
from qbench.words.written import parse_bytes
from quant.errors import InputError
from quant.yaml_file import read_yaml

# key -> its class
SECTIONS = {"eval": EvalSettings, "tasks": TaskSettings, "bench": SpeedCase, "calibration": CalibrationSettings}
# key of an axis -> check of one value
CHECKS = {
    "kv_formats": check_kv_format,
    "caches": check_layout,
    "policies": check_policy,
    "attention": check_attention_name,
    "prefill": check_pattern,
    "kv_ram": lambda size: None if size == ALL else parse_bytes(size),
    "question": check_question,
    "compute": check_compute,
    "isa": lambda isa: check_known("isa", isa, (AUTO, *ISAS)),
    "divisions": RankLayout.of,
    "memory": check_limit,
    "device": lambda device: check_known("device", device, DEVICES),
}


def load_suite(path: str | Path) -> Suite:
    """The suite of a YAML file. raises InputError for a file, key, name or value that it cannot use."""
    path = Path(path)
    suite = build_suite(read_yaml(path, "suite"), str(path), path.parent)
    check_names(suite)
    return suite


def check_names(suite: Suite) -> None:
    """raises InputError for the first name that no machine knows, with the nearest one"""
    for model in suite.models:
        check_model(model)
    for recipe in suite.recipes:
        check_recipe(recipe, suite.kv_formats)
    check_caches(suite.caches or (), f"suite {suite.name}")
    for key, check in CHECKS.items():
        for name in getattr(suite, key) or ():
            check(name)


def build_suite(document: Any, where: str, folder: Path) -> Suite:
    """A suite from parsed YAML; texts and recipe files are looked up from `folder`."""
    if isinstance(document, Mapping) and "cases" in document:
        raise InputError(f"{where}: a suite of kernels, without models; `qbench kernels --suite {where}` times them")
    for key in document if isinstance(document, Mapping) else ():
        check_key(key, where)
    lists = {axis.key: (axis.kind, axis.words) for axis in AXES}
    values = fields_of(document, Suite, where, lists, sections=(*SECTIONS, "exclude"))
    missing = [name for name in ("name", "models", "recipes") if name not in values]
    if missing:
        raise InputError(f"{where}: {', '.join(missing)} missing; a suite needs name, models and recipes")
    for section, kind in SECTIONS.items():
        if values.get(section) is not None:
            check_section(section, values[section], where)
            given = fields_of(values[section], kind, f"{where}: {section}")
            if section == "tasks" and "names" not in given:
                raise InputError(f"{where}: tasks: names missing, a list of tasks such as ref_recall")
            values[section] = _located_files(kind(**given), folder)
    values["recipes"] = tuple(_located(recipe, folder) for recipe in values["recipes"])
    values["exclude"] = tuple(_rule(item, where, folder) for item in _items(values.get("exclude"), where))
    return Suite(**values)


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
    if text is not None and is_file_spec(text):
        return replace(settings, text=str(folder / text))
    include = getattr(settings, "include", ())
    return replace(settings, include=tuple(str(folder / one) for one in include)) if include else settings


def _located(recipe: str, folder: Path) -> str:
    return str(folder / recipe) if recipe.endswith((".yaml", ".yml")) else recipe
