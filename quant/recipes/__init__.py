"""Recipes by name or from a YAML file."""

import difflib
from dataclasses import replace
from pathlib import Path

from quant.errors import InputError
from quant.kv import KV_FORMATS
from quant.recipes.presets import RECIPES, SIZES, with_groups
from quant.recipes.recipe import Recipe, TensorChoice
from quant.recipes.yaml_recipe import read_recipe

ROTATED, LEARNED = "rot-", "spin-"

__all__ = ["RECIPES", "Recipe", "TensorChoice", "get_recipe"]


def get_recipe(spec: str | Path) -> Recipe:
    """The recipe of a name `[rot-|spin-]WEIGHTS[+KV]` or of a .yaml / .yml file.

    raises   InputError for an unknown name (lists the known, suggests the nearest) or KV suffix
    """
    spec = str(spec)
    if spec.endswith((".yaml", ".yml")):
        return read_recipe(Path(spec))
    name, plus, kv = spec.partition("+")
    weights = name.removeprefix(ROTATED).removeprefix(LEARNED)
    recipe = RECIPES.get(weights) or with_groups(weights)
    if recipe is None:
        raise InputError(
            f"unknown recipe {weights!r}{_nearest(weights)}; known are {', '.join(RECIPES)} or a .yaml file; "
            f"groups (g128) may also be of {', '.join(SIZES)}, and of 2, 3, 4 and 8 bits (w3g64); "
            f"{ROTATED} before a name rotates the model first, {LEARNED} learns the rotation"
        )
    recipe = replace(recipe, name=name, rotated=weights != name, learned=name.startswith(LEARNED))
    if not plus:
        return recipe
    if kv not in KV_FORMATS:
        raise InputError(f"unknown KV suffix '+{kv}'; known are {', '.join('+' + name for name in KV_FORMATS)}")
    return replace(recipe, name=spec, kv=kv)


def _nearest(name: str) -> str:
    """A recipe of this format by a method, for formats that need one; else the name that looks most like it."""
    name = name.lower()
    close = [known for known in RECIPES if known.endswith(f"-{name}")] or difflib.get_close_matches(name, RECIPES, n=1)
    return f", did you mean {close[0]!r}?" if close else ""
