"""A recipe written by the user: ordered rules in a YAML file, over a named recipe or a format for the rest.

base: q4_k_m
rules:
  - {match: "*.down_proj*", format: q6_k}
  - {match: "*.layers.0.*", method: gptq, options: {act_order: true}}

Without a base, `container` and `default` give the format of the rest:

container: hf
default: w4g128
method: gptq
options: {act_order: true}
packing: gptq
kv: kv-fp8
rotate: true
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from quant.errors import InputError
from quant.formats import get_format
from quant.kv import get_kv_format
from quant.methods import Method, make_method
from quant.recipes.containers import CONTAINERS
from quant.recipes.policies import Default, Rule, Rules
from quant.recipes.presets import RECIPES
from quant.recipes.recipe import Recipe
from quant.yaml_file import check_keys, read_yaml

RECIPE_KEYS = ("name", "base", "container", "method", "options", "packing", "kv", "rotate", "default", "rules")
RULE_KEYS = ("match", "format", "method", "options")


def read_recipe(path: Path) -> Recipe:
    """The recipe of a YAML file; its name is the file's stem unless the file gives one.

    raises   InputError for an unreadable file, unknown or missing keys, unknown formats, methods and options
    """
    data = read_yaml(path, "recipe")
    try:
        return recipe_from(data, path.stem)
    except InputError as error:
        raise InputError(f"recipe {path}: {error}") from error


def recipe_from(data: Any, name: str) -> Recipe:
    """The recipe that a YAML document means; `name` unless it gives one."""
    check_keys("a recipe", data, RECIPE_KEYS)
    recipe = _base(data)
    rows = data.get("rules", [])
    if not isinstance(rows, list):
        raise InputError(f"rules must be a list of {{match, format}}, got {type(rows).__name__}")
    rules = tuple(_rule(number, row, recipe) for number, row in enumerate(rows, start=1))
    return replace(
        recipe,
        name=str(data.get("name", name)),
        policy=Rules(rules, recipe.policy) if rules else recipe.policy,
        must_match=tuple(rule.match for rule in rules),
        source=data,
    )


def _base(data: Mapping[str, Any]) -> Recipe:
    """The document's recipe without its rules."""
    own = {key: data[key] for key in ("method", "packing", "kv") if key in data}
    for key, value in own.items():
        if not isinstance(value, str):
            raise InputError(f"{key} must be a name, got {value!r}")
    if "kv" in own:
        get_kv_format(own["kv"])
    rotate = data.get("rotate", False)
    if not isinstance(rotate, bool) and rotate != "learned":
        raise InputError(f"rotate must be true, false or learned, got {rotate!r}")
    own |= {"rotated": bool(rotate), "learned": rotate == "learned"}
    if "options" in data:
        own["options"] = _options("options", data["options"])
    if "base" in data:
        return _preset(data, own)
    check_keys("a recipe without a base", data, RECIPE_KEYS, ("container", "default"))
    container = str(data["container"])
    if container not in CONTAINERS:
        raise InputError(f"container {container!r}, expected one of {', '.join(CONTAINERS)}")
    policy = Default(get_format(str(data["default"])).name)
    return Recipe("", container, **{"method": "rtn", "policy": policy, **own})


def _preset(data: Mapping[str, Any], own: dict[str, Any]) -> Recipe:
    base = str(data["base"])
    if base not in RECIPES:
        raise InputError(f"base {base!r} is no recipe; known are {', '.join(RECIPES)}")
    for key in ("container", "default"):
        if key in data:
            raise InputError(f"{key} and base exclude each other: base {base} says what no rule matches")
    if "method" in own:
        own.setdefault("options", {})  # those of the base are another method's
    return replace(RECIPES[base], **own)


def _rule(number: int, row: Any, recipe: Recipe) -> Rule:
    what = f"rule {number}"
    check_keys(what, row, RULE_KEYS, ("match",))
    if len(row) == 1:
        raise InputError(f"{what} says nothing of {row['match']!r}; give it a format, a method or options")
    fmt = get_format(str(row["format"])).name if "format" in row else None
    return Rule(str(row["match"]), fmt, _rule_method(what, row, recipe))


def _rule_method(what: str, row: Mapping[str, Any], recipe: Recipe) -> Method | None:
    """The rule's own method; options without a method are those of the recipe's, changed."""
    if "method" not in row and "options" not in row:
        return None
    options = _options(f"options of {what}", row.get("options", {}))
    if "method" in row:
        return make_method(str(row["method"]), options)
    return make_method(recipe.method, {**recipe.options, **options})


def _options(what: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{what} must be a mapping of names to values, got {value!r}")
    return value
