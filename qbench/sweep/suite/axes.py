"""The axes of a suite: what each is called and what its values may be."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DENSE = "dense-f32"  # keys and values as the model computes them
ALL = "all"  # threads: one for every core that this process may use


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of the axes' values.

    kv_format   of the KV cache, the recipe's own if the suite does not say
    context     tokens held before bench's phases
    """

    model: str
    recipe: str
    kv_format: str
    cache: str
    compute: str
    isa: str
    device: str
    threads: int
    batch: int
    context: int | None

    def value(self, axis: str) -> str | int | None:
        """By the name that the axis has in suites and with --only."""
        return getattr(self, FIELDS[axis])

    def values(self, axes: Iterable[str]) -> tuple[str | int | None, ...]:
        return tuple(map(self.value, axes))


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the grid.

    name    in rules and with --only
    key     in the suite's file, a list or one value
    field   of a Point
    kind    of the values
    least   of numbers
    words   that stand for a number which the machine knows
    """

    name: str
    key: str
    field: str
    kind: type
    least: int = 1
    words: tuple[str, ...] = ()


# The last one turns fastest: what shares a model, then an artifact, is measured side by side.
AXES = (
    Axis("model", "models", "model", str),
    Axis("recipe", "recipes", "recipe", str),
    Axis("cache", "caches", "kv_format", str),
    Axis("cache_kind", "cache_kinds", "cache", str),
    Axis("products", "products", "compute", str),
    Axis("isa", "isa", "isa", str),
    Axis("device", "device", "device", str),
    Axis("threads", "threads", "threads", int, words=(ALL,)),
    Axis("batch", "batches", "batch", int),
    Axis("context", "contexts", "context", int, least=0),
)
NAMES = tuple(axis.name for axis in AXES)
FIELDS = {axis.name: axis.field for axis in AXES}
# A token's logits are the same for every number of threads, batch and depth, so quality is measured at the first alone.
OF_SPEED = ("threads", "batch", "context")


def varying(points: Sequence[Point]) -> tuple[str, ...]:
    """The axes that have more than one value in these points."""
    return tuple(name for name in NAMES if len({point.value(name) for point in points}) > 1)
