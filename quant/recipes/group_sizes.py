"""Recipes of other groups and bits than those in the table: `rtn-w3g32` is `rtn-w4g128` with 3 bits, groups of 32."""

import re
from dataclasses import replace

from quant.formats import IntGroupFormat, get_format
from quant.recipes.containers import GROUP_SIZES
from quant.recipes.policies import Linears
from quant.recipes.presets import RECIPES
from quant.recipes.recipe import Recipe

NAME = re.compile(r"(?P<before>.*-w)(?P<bits>[2348])g(?P<size>[0-9]+)(?P<after>.*)")
SIZES = tuple(map(str, GROUP_SIZES))


def with_groups(name: str) -> Recipe | None:
    """The recipe of the table that differs from `name` only in bits and group size, with those, or None.

    HQQ has groups of any size over blocks of 4 bits.
    """
    if (wanted := NAME.fullmatch(name)) is None or wanted["size"] not in SIZES:
        return None
    for known, recipe in RECIPES.items():
        found = NAME.fullmatch(known)
        if found is None or (found["before"], found["after"]) != (wanted["before"], wanted["after"]):
            continue
        if "group_size" in recipe.options:
            if found["bits"] != wanted["bits"]:
                continue
            return replace(recipe, name=name, options={**recipe.options, "group_size": int(wanted["size"])})
        assert isinstance(recipe.policy, Linears), f"{known}: a preset of groups"
        group = get_format(recipe.policy.format)
        assert isinstance(group, IntGroupFormat), f"{known}: a preset of groups"
        other = IntGroupFormat(int(wanted["bits"]), int(wanted["size"]), group.symmetric)
        return replace(recipe, name=name, policy=Linears(get_format(other.name).name))
    return None
