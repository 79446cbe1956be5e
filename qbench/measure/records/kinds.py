"""The classes that a record's case and metrics have, by the kind that the case names."""

from dataclasses import dataclass
from typing import ClassVar

from qbench.measure.case import Case
from qbench.measure.metrics import Blocks, Facts, Metrics, Quality, TaskResult
from quant.json_data import JsonData, JsonRow

AGAIN = "again"  # of the rows of a second time, see `qbench.sweep.again`
NOISE_FLOOR = "noise-floor"


@dataclass(frozen=True, slots=True)
class FloorCase(JsonRow):
    """The model that is compared with itself, computed otherwise."""

    kind: str
    model: str | None = None
    fingerprint: str | None = None
    threads: int | None = None
    isa: str | None = None
    device: str | None = None
    protocol_hash: str | None = None


@dataclass(frozen=True, slots=True)
class FloorMetrics(JsonRow):
    """The model as it runs, its distances from itself by variant, and the largest of them by metric."""

    json_flat: ClassVar[tuple[str, ...]] = ("facts", "quality")
    json_omits: ClassVar[tuple[str, ...]] = ("tasks",)

    facts: Facts | None = None
    quality: Quality | None = None
    tasks: dict[str, TaskResult] | None = None
    variants: dict[str, "FloorVariant"] | None = None
    floor: dict[str, float] | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class FloorVariant(JsonRow):
    """A way to compute the same model, and its distance from the model as it runs.

    how                        as people read it
    perplexity, kld, same_top  estimates {value, error, low, high}, of a text
    change, flips              of a task: the estimate, and the answers lost and gained
    floor                      metric -> distance; of a task the distance alone
    """

    json_omits: ClassVar[tuple[str, ...]] = ("perplexity", "kld", "same_top", "change", "flips", "blocks")

    how: str
    perplexity: dict[str, float | None] | None = None
    kld: dict[str, float | None] | None = None
    same_top: dict[str, float | None] | None = None
    change: dict[str, float | None] | None = None
    flips: dict[str, int] | None = None
    floor: dict[str, float] | float | None = None
    blocks: Blocks | None = None

    def distance(self, metric: str) -> float:
        return self.floor[metric] if isinstance(self.floor, dict) else self.floor or 0.0


@dataclass(frozen=True, slots=True)
class OtherCase(JsonRow):
    """A case of a kind without a class of its own: all else is in `rest`."""

    kind: str


@dataclass(frozen=True, slots=True)
class OtherMetrics(JsonRow):
    """Metrics of a kind without a class of its own: everything is in `rest`."""


AnyCase = Case | FloorCase | OtherCase
AnyMetrics = Metrics | FloorMetrics | OtherMetrics
OF_KIND: dict[str | None, tuple[type[JsonData], type[JsonData]]] = {
    None: (Case, Metrics),
    AGAIN: (Case, Metrics),
    NOISE_FLOOR: (FloorCase, FloorMetrics),
}


def classes_of(kind: str | None) -> dict[str, type[JsonData]]:
    """Field of a record -> its class."""
    case, metrics = OF_KIND.get(kind, (OtherCase, OtherMetrics))
    return {"case": case, "metrics": metrics}
