"""The classes that a record's case and metrics have, by the kind that the case names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from qbench.measure.launch import Launch
from qbench.measure.metrics import Facts, Metrics
from qbench.measure.quality_figures import Blocks, Quality, TaskResult
from qbench.measure.records.kept_kinds import (
    KernelCase,
    KernelMetrics,
    LatentCase,
    LatentMetrics,
    PlanCase,
    PlanMetrics,
    ThroughputCase,
    ThroughputMetrics,
    VersusCase,
    VersusMetrics,
)
from qbench.measure.records.kept_placements import (
    BreakevenCase,
    BreakevenMetrics,
    PeerCase,
    PeerMetrics,
    PlacementCase,
    PlacementMetrics,
)
from qbench.measure.records.kept_ranks import RankRates, RankRatesCase, RanksCase, RanksMetrics
from qbench.measure.records.kept_searches import SearchCase, SearchMetrics
from qbench.run.case import Case
from qbench.run.work import QualityWork
from qbench.statistics.estimate import Estimate
from quant.json_data import JsonData, JsonRow

AGAIN = "again"  # of the rows of further launches, see `qbench.sweeps.suite.cases`
NOISE_FLOOR = "noise-floor"
GATE = "gate"
GATE_TEST = "gate-test"  # a test that calls `qbench_gate`


@dataclass(frozen=True, slots=True)
class ModelCase(JsonRow):
    """The kind of a row, and the model that it is of. threads: of the run"""

    kind: str
    model: str | None = None
    fingerprint: str | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class FloorCase(ModelCase):
    """The model that is compared with itself, computed otherwise."""

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

    @property
    def protocol_hash(self) -> str | None:
        return self.quality and self.quality.protocol and self.quality.protocol.hash


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
class GateTestCase(ModelCase):
    """A test of `qbench_gate`: its gate and settings, and the model under the name that it has in every run."""

    json_keys: ClassVar[Mapping[str, str]] = {"quality": "eval"}
    json_omits: ClassVar[tuple[str, ...]] = ("quality", "context")

    gate: str = field(kw_only=True)
    name: str = field(kw_only=True)
    quality: QualityWork | None = None
    context: int | None = None


@dataclass(frozen=True, slots=True)
class GateCase(JsonRow):
    """A run of the gate: suite, baseline, and the baseline's (commit, whether its tree was changed)."""

    kind: str
    suite: str
    baseline: str
    baseline_commit: tuple[str | None, bool | None]


@dataclass(frozen=True, slots=True)
class GateCheck(JsonRow):
    """A check of the gate as records keep it. Fields as in `qbench.gate.check.Check`."""

    gate: str
    case: str
    metric: str
    unit: str
    baseline: float | None
    now: float | None
    loss: Estimate
    is_exact: bool = False
    freedom: int | None = None
    floor: float = 0.0
    is_gate: bool = True
    adjusted_p: float | None = None
    detectable: float | None = None
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class GateMetrics(JsonRow):
    """Result of a gate. launches: name of a case -> samples of its processes"""

    red: bool
    failed: dict[str, str]
    not_checked: list[str]
    checks: list[GateCheck]
    seconds: float | None = None
    launches: dict[str, list[Launch]] | None = None


@dataclass(frozen=True, slots=True)
class OtherCase(JsonRow):
    """A case of a kind without a class of its own: all else is in `rest`."""

    kind: str


@dataclass(frozen=True, slots=True)
class OtherMetrics(JsonRow):
    """Metrics of a kind without a class of its own: everything is in `rest`."""


KeptCase = (
    KernelCase
    | VersusCase
    | ThroughputCase
    | LatentCase
    | PlanCase
    | PlacementCase
    | PeerCase
    | BreakevenCase
    | RanksCase
    | RankRatesCase
    | SearchCase
)
KeptMetrics = (
    KernelMetrics
    | VersusMetrics
    | ThroughputMetrics
    | LatentMetrics
    | PlanMetrics
    | PlacementMetrics
    | PeerMetrics
    | BreakevenMetrics
    | RanksMetrics
    | RankRates
    | SearchMetrics
)
AnyCase = Case | FloorCase | GateTestCase | GateCase | KeptCase | OtherCase
AnyMetrics = Metrics | FloorMetrics | GateMetrics | KeptMetrics | OtherMetrics
OF_KIND: dict[str | None, tuple[type[AnyCase], type[AnyMetrics]]] = {
    None: (Case, Metrics),
    AGAIN: (Case, Metrics),
    NOISE_FLOOR: (FloorCase, FloorMetrics),
    GATE: (GateCase, GateMetrics),
    GATE_TEST: (GateTestCase, Metrics),
    "kernel": (KernelCase, KernelMetrics),
    "versus": (VersusCase, VersusMetrics),
    "throughput": (ThroughputCase, ThroughputMetrics),
    "mla": (LatentCase, LatentMetrics),
    "plan": (PlanCase, PlanMetrics),
    "placement": (PlacementCase, PlacementMetrics),
    "peer": (PeerCase, PeerMetrics),
    "breakeven": (BreakevenCase, BreakevenMetrics),
    "ranks": (RanksCase, RanksMetrics),
    "rank-rates": (RankRatesCase, RankRates),
    "search": (SearchCase, SearchMetrics),
}


def case_and_metrics(kind: str | None) -> tuple[type[AnyCase], type[AnyMetrics]]:
    return OF_KIND.get(kind, (OtherCase, OtherMetrics))


def classes_of(kind: str | None) -> dict[str, type[JsonData]]:
    """Field of a record -> its class."""
    case, metrics = case_and_metrics(kind)
    return {"case": case, "metrics": metrics}
