"""Recipes by name or from a YAML file."""

import difflib
from pathlib import Path

from quant.errors import InputError
from quant.recipes.presets import RECIPES
from quant.recipes.recipe import Recipe, TensorPlan
from quant.recipes.yaml_recipe import read_recipe

__all__ = ["RECIPES", "Recipe", "TensorPlan", "get_recipe"]

KV_SUFFIXES = ("kv-fp8", "kv-int8", "kv-int4")
SUPPORTED_KV_SUFFIXES: tuple[str, ...] = ()


def get_recipe(spec: str | Path) -> Recipe:
    """The recipe of a name `WEIGHTS[+KV]` or of a .yaml / .yml file.

    raises   InputError for an unknown name (lists the known, suggests the nearest) or KV suffix
    """
    spec = str(spec)
    if spec.endswith((".yaml", ".yml")):
        return read_recipe(Path(spec))
    weights, plus, kv = spec.partition("+")
    if weights not in RECIPES:
        raise InputError(
            f"unknown recipe {weights!r}{_nearest(weights)}; known are {', '.join(RECIPES)} or a .yaml file"
        )
    if plus:
        _check_kv(kv)
    return RECIPES[weights]


def _check_kv(kv: str) -> None:
    if kv not in KV_SUFFIXES:
        raise InputError(f"unknown KV suffix '+{kv}'; known are {', '.join('+' + name for name in KV_SUFFIXES)}")
    if kv not in SUPPORTED_KV_SUFFIXES:
        supported = ", ".join("+" + name for name in SUPPORTED_KV_SUFFIXES) or "none"
        raise InputError(f"KV suffix '+{kv}' is not supported yet (supported: {supported}); leave it away")


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), RECIPES, n=1)
    return f", did you mean {close[0]!r}?" if close else ""
