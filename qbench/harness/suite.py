"""Suites: what a sweep measures, as YAML data, checked before anything runs."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from qbench.calibration.options import SAMPLES, is_file_spec
from qbench.harness.speed_case import SpeedCase
from qbench.threads import check_threads
from quant.errors import InputError
from quant.yaml_file import read_yaml


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """Quality: windows of a text, compared with the unquantized model."""

    text: str | None = None  # a file, from the suite's folder; None: the reference models' held-out text
    max_windows: int | None = None  # None: the whole text


@dataclass(frozen=True, slots=True)
class CalibrationSettings:
    """What recipes that need it are calibrated on, as `qbench quantize` takes it."""

    text: str | None = None  # a file, from the suite's folder; None: what fits the model
    samples: int = SAMPLES
    length: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Suite:
    """Every recipe of every model is one case; `eval` and `bench` say what is measured of each."""

    name: str
    models: tuple[str, ...]
    recipes: tuple[str, ...]
    description: str = ""
    eval: EvalSettings | None = None
    bench: SpeedCase | None = None
    calibration: CalibrationSettings | None = None  # None: the defaults
    threads: int | None = None  # None: every core that this process may use

    def __post_init__(self) -> None:
        for axis in ("models", "recipes"):
            values = getattr(self, axis)
            if not values:
                raise InputError(f"suite {self.name}: {axis} is empty, expected at least one")
            if len(set(values)) != len(values):
                raise InputError(f"suite {self.name}: {axis} names the same twice: {', '.join(values)}")
        if self.eval is None and self.bench is None:
            raise InputError(f"suite {self.name}: neither eval nor bench is there, so nothing would be measured")
        check_threads(self.threads, f"suite {self.name}: ")
        if not re.fullmatch(r"[\w][\w.+-]*", self.name):
            raise InputError(f"suite name is {self.name!r}, expected letters, digits and . + - _ (it names a folder)")


# key -> (types, what a reader is told)
LISTS = {"models", "recipes"}
COUNTS = {"pp", "tg", "depth", "repetitions", "max_windows", "threads", "samples", "length", "seed"}
SECTIONS = {"eval": EvalSettings, "bench": SpeedCase, "calibration": CalibrationSettings}


def load_suite(path: str | Path) -> Suite:
    """The suite of a YAML file. raises InputError for a file, key or value that it cannot use."""
    path = Path(path)
    document = read_yaml(path, "suite")
    suite = build_suite(document, str(path), path.parent)
    check_recipes(suite.recipes)
    return suite


def build_suite(document: Any, where: str, folder: Path) -> Suite:
    """A suite from parsed YAML; texts and recipe files are looked up from `folder`."""
    values = _values(document, Suite, where)
    for section, kind in SECTIONS.items():
        if values.get(section) is not None:
            values[section] = kind(**_values(values[section], kind, f"{where}: {section}"))
    for section in ("eval", "calibration"):
        settings = values.get(section)
        if settings is not None and settings.text is not None and is_file_spec(settings.text):
            values[section] = replace(settings, text=str(folder / settings.text))
    values["recipes"] = tuple(_located(recipe, folder) for recipe in values.get("recipes", ()))
    missing = [name for name in ("name", "models", "recipes") if name not in document]
    if missing:
        raise InputError(f"{where}: {', '.join(missing)} missing; a suite needs name, models and recipes")
    return Suite(**values)


def _located(recipe: str, folder: Path) -> str:
    return str(folder / recipe) if recipe.endswith((".yaml", ".yml")) else recipe


def check_recipes(names: Iterable[str]) -> None:
    """raises InputError for a recipe that is not known (as `get_recipe` says it)"""
    from quant.recipes import get_recipe

    for name in names:
        get_recipe(name)


def _values(document: Any, kind: type, where: str) -> dict[str, Any]:
    """The mapping with its keys and value types checked against the fields of `kind`."""
    known = [field.name for field in fields(kind)]
    if not isinstance(document, Mapping):
        raise InputError(f"{where}: got {type(document).__name__}, expected a mapping of {', '.join(known)}")
    for key in document:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"{where}: unknown key {key!r}; known: {', '.join(known)}{hint}")
    return {key: _checked(key, value, where) for key, value in document.items()}


def _checked(key: str, value: Any, where: str) -> Any:
    if key in SECTIONS or value is None:
        return value
    if key in LISTS:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InputError(f"{where}: {key} is {value!r}, expected a list of names")
        return tuple(value)
    expected = int if key in COUNTS else str
    if not isinstance(value, expected) or isinstance(value, bool):
        raise InputError(f"{where}: {key} is {value!r}, expected {'a whole number' if expected is int else 'text'}")
    if key == "max_windows" and value < 1:
        raise InputError(f"{where}: max_windows is {value}, expected at least 1")
    return value
