"""The axes of a suite: names and possible values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qbench.words.written import parse_bytes
from quant.kv_names import FLOAT32

DENSE = FLOAT32  # the KV cache as the model computes it
ALL = "all"  # threads: one for every core that this process may use; kv_ram: every token


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of the axes' values.

    kv_format   of the KV cache, the recipe's own if the suite does not say
    prefill_chunk  tokens of a prompt per forward pass, at most; None: all
    attention   the code that computes it; None: the best that the model can have
    prefill     blocks of the attention matrix that a prefill computes
    kv_ram      memory of the KV cache, as 2MiB; the rest is on a disk; "all": no disk
    question    whether a policy sees a task's question before it compresses; None: prompts are not cut
    division    of the model among ranks, as `RankLayout.of` reads it; None: one rank
    memory      limit of the process: "2GiB", or "40%" of the weights' bytes; None: no limit
    context     tokens held before bench's phases
    """

    model: str
    recipe: str
    kv_format: str
    cache: str
    policy: str
    prefill_chunk: int | None
    attention: str | None
    prefill: str
    kv_ram: str
    question: str | None
    compute: str
    isa: str
    device: str
    division: str | None
    memory: str | None
    threads: int
    batch: int
    context: int | None

    @property
    def kv_ram_bytes(self) -> int | None:
        return None if self.kv_ram == ALL else parse_bytes(self.kv_ram)

    def value(self, axis: str) -> str | int | None:
        """By the name that the axis has in suites and with --only."""
        return getattr(self, axis)

    def values(self, axes: Iterable[str]) -> tuple[str | int | None, ...]:
        return tuple(map(self.value, axes))


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the grid.

    name    of the field of a Point, in rules and with --only
    key     in the suite's file, a list or one value
    kind    of the values
    least   of numbers
    words   that mean a number which the machine knows
    """

    name: str
    key: str
    kind: type
    least: int = 1
    words: tuple[str, ...] = ()


# The last one turns fastest, so that cases of one model, then of one artifact, are measured one after the other.
AXES = (
    Axis("model", "models", str),
    Axis("recipe", "recipes", str),
    Axis("kv_format", "kv_formats", str),
    Axis("cache", "caches", str),
    Axis("policy", "policies", str),
    Axis("prefill_chunk", "prefill_chunks", int),
    Axis("attention", "attention", str),
    Axis("prefill", "prefill", str),
    Axis("kv_ram", "kv_ram", str),
    Axis("question", "question", str),
    Axis("compute", "compute", str),
    Axis("isa", "isa", str),
    Axis("device", "device", str),
    Axis("division", "divisions", str),
    Axis("memory", "memory", str),
    Axis("threads", "threads", int, words=(ALL,)),
    Axis("batch", "batches", int),
    Axis("context", "contexts", int, least=0),
)
NAMES = tuple(axis.name for axis in AXES)
# A token's logits are the same for every limit, number of threads, batch and depth: quality is measured at the first.
OF_SPEED = ("memory", "threads", "batch", "context")


def varying(points: Sequence[Point]) -> tuple[str, ...]:
    """The axes that have more than one value in these points."""
    return tuple(name for name in NAMES if len({point.value(name) for point in points}) > 1)
