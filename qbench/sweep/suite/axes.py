"""The axes of a suite: what each is called and what its values may be."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


def varying(points: Sequence[Point]) -> tuple[str, ...]:
    """The axes that have more than one value in these points."""
    return tuple(name for name in NAMES if len({point[name] for point in points}) > 1)
