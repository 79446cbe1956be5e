"""The axes of a suite: what each is called, what its values may be, and the points of its grid."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from qbench.cache_kinds import DYNAMIC
from qbench.measure.host.machine import available_cores
from qbench.products import AUTO
from quant.recipes import get_recipe

if TYPE_CHECKING:
    from qbench.sweep.suite.suite import Suite

DENSE = "dense-f32"  # keys and values as the model computes them
ALL = "all"  # threads: one for every core that this process may use

Point = dict[str, Any]  # axis -> its value here


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the grid.

    name    in a point, in rules and with --only
    key     in the suite's file, a list or one value
    kind    of the values
    least   of numbers
    words   that stand for a number which the machine knows
    """

    name: str
    key: str
    kind: type
    least: int = 1
    words: tuple[str, ...] = ()


# The last one turns fastest: what shares a model, then an artifact, is measured side by side.
AXES = (
    Axis("model", "models", str),
    Axis("recipe", "recipes", str),
    Axis("cache", "caches", str),
    Axis("cache_kind", "cache_kinds", str),
    Axis("products", "products", str),
    Axis("isa", "isa", str),
    Axis("device", "device", str),
    Axis("threads", "threads", int, words=(ALL,)),
    Axis("batch", "batches", int),
    Axis("context", "contexts", int, least=0),
)
NAMES = tuple(axis.name for axis in AXES)
# A token's logits are the same for every number of threads, batch and depth, so quality is measured at the first alone.
OF_SPEED = ("threads", "batch", "context")


def grid(suite: "Suite") -> Iterator[Point]:
    """Every combination of the suite's values; axes that it does not give have one value."""
    given = {axis.name: getattr(suite, axis.key) or defaults(suite)[axis.name] for axis in AXES}
    # On a machine of one core, 1 and all of them are one point.
    given["threads"] = tuple(dict.fromkeys(available_cores() if one == ALL else one for one in given["threads"]))
    for values in product(*given.values()):
        point = dict(zip(NAMES, values, strict=True))
        if point["cache"] is None:
            point["cache"] = own_cache(point["recipe"])
        yield point


def defaults(suite: "Suite") -> Point:
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


def varying(points: Sequence[Point]) -> tuple[str, ...]:
    """The axes that have more than one value in these points."""
    return tuple(name for name in NAMES if len({point[name] for point in points}) > 1)


def own_cache(recipe: str) -> str:
    """How the recipe itself has keys and values kept."""
    return get_recipe(recipe).kv or DENSE
