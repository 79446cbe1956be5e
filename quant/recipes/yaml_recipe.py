"""A recipe written by the user: ordered rules in a YAML file.

container: gguf
default: q4_k
rules:
  - {match: "*.down_proj*", format: q6_k}
  - {match: "lm_head.weight", format: q8_0}
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from quant.errors import InputError
from quant.formats import get_format
from quant.recipes.containers import CONTAINERS
from quant.recipes.policies import Rule, Rules
from quant.recipes.recipe import Recipe

RECIPE_KEYS = ("name", "container", "method", "default", "rules")
REQUIRED_KEYS = ("container", "default")
RULE_KEYS = ("match", "format")


def read_recipe(path: Path) -> Recipe:
    """The recipe of a YAML file; its name is the file's stem where it gives none.

    raises   InputError for an unreadable file, unknown or missing keys, unknown formats and methods
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"recipe {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"recipe {path}: not YAML ({' '.join(str(error).split())})") from error
    try:
        return _recipe(data, path.stem)
    except InputError as error:
        raise InputError(f"recipe {path}: {error}") from error


def _recipe(data: Any, stem: str) -> Recipe:
    _check_keys("a recipe", data, RECIPE_KEYS, REQUIRED_KEYS)
    container = str(data["container"])
    if container not in CONTAINERS:
        raise InputError(f"container {container!r}, expected one of {', '.join(CONTAINERS)}")
    rows = data.get("rules", [])
    if not isinstance(rows, list):
        raise InputError(f"rules must be a list of {{match, format}}, got {type(rows).__name__}")
    rules = tuple(_rule(number, row) for number, row in enumerate(rows, start=1))
    default = get_format(str(data["default"])).name
    return Recipe(str(data.get("name", stem)), container, str(data.get("method", "rtn")), Rules(rules, default))


def _rule(number: int, row: Any) -> Rule:
    _check_keys(f"rule {number}", row, RULE_KEYS, RULE_KEYS)
    return Rule(str(row["match"]), get_format(str(row["format"])).name)


def _check_keys(what: str, data: Any, valid: tuple[str, ...], required: tuple[str, ...]) -> None:
    if not isinstance(data, Mapping):
        raise InputError(f"{what} must be a mapping of {', '.join(valid)}, got {type(data).__name__}")
    unknown = [str(key) for key in data if key not in valid]
    if unknown:
        raise InputError(f"{what} has unknown keys {', '.join(unknown)}; valid are {', '.join(valid)}")
    missing = [key for key in required if key not in data]
    if missing:
        raise InputError(f"{what} lacks {', '.join(missing)}")
