"""The points of a suite's grid."""

import os
from collections.abc import Iterator
from itertools import product

from qbench.cache_kinds import DYNAMIC
from qbench.measure.host.machine import available_cores
from qbench.products import AUTO
from qbench.sweep.suite.axes import ALL, AXES, DENSE, NAMES, Point
from qbench.sweep.suite.suite import Suite
from quant.recipes import get_recipe


def grid(suite: Suite) -> Iterator[Point]:
    """Every combination of the suite's values; axes that it does not give have one value."""
    given = {axis.name: getattr(suite, axis.key) or defaults(suite)[axis.name] for axis in AXES}
    # On a machine of one core, 1 and all of them are one point.
    given["threads"] = tuple(dict.fromkeys(available_cores() if one == ALL else one for one in given["threads"]))
    for values in product(*given.values()):
        point = dict(zip(NAMES, values, strict=True))
        if point["cache"] is None:
            point["cache"] = own_cache(point["recipe"])
        yield point


def defaults(suite: Suite) -> Point:
    return {
        "cache": (None,),  # as the recipe says
        "cache_kind": (DYNAMIC,),
        "products": (AUTO,),
        "isa": (os.environ.get("QBENCH_ISA") or "auto",),
        "device": ("cpu",),
        "threads": (ALL,),
        "batch": (suite.bench.batch if suite.bench else 1,),
        "context": (suite.bench.depth if suite.bench else None,),
        "model": (),
        "recipe": (),
    }


def own_cache(recipe: str) -> str:
    """How the recipe itself has keys and values kept."""
    return get_recipe(recipe).kv or DENSE
