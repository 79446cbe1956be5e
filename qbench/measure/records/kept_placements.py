"""Rows of `qbench plan --goal`, `compare_offload.py` and `qbench breakeven`: placements, rates next to other programs,
and sizes from which a choice pays."""

from dataclasses import dataclass
from typing import ClassVar

from qbench.measure.records.kept_kinds import ModelRow, TimedRow
from qbench.measure.speed_figures import StepTime
from quant.json_data import JsonRow


@dataclass(frozen=True, slots=True)
class PlacementCase(ModelRow):
    """A model within a memory limit, see `OffloadCase` of `qbench plan --goal`."""

    memory_bytes: int | None = None
    context: int | None = None
    batch: int | None = None
    goal: str | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class TierRates(JsonRow):
    """Measured rates. product_s: format -> seconds per byte of weight; overheads: seconds per layer and per step"""

    disk_bytes_s: float | None = None
    disk_latency_s: float | None = None
    disk_cpu_s: float | None = None
    product_s: dict[str, float] | None = None
    overheads: dict[str, float] | None = None


@dataclass(frozen=True, slots=True)
class PlacementMetrics(JsonRow):
    """The best placement and its predicted step; measured, if it was run. ratio: predicted over measured rate"""

    tiers: TierRates | None = None
    together: int | None = None
    prefill_chunk: int | None = None
    pinned_layers: int | None = None
    streamed_layers: int | None = None
    pinned_bytes: float | None = None
    ring_bytes: float | None = None
    kv_ram_bytes: float | None = None
    kv_disk_bytes: float | None = None
    fixed_bytes: float | None = None
    expert_share: float | None = None
    step: StepTime | None = None
    predicted_tok_s: float | None = None
    measured: StepTime | None = None
    measured_tok_s: float | None = None
    ratio: float | None = None
    busy_before: float | None = None


@dataclass(frozen=True, slots=True)
class PeerCase(ModelRow):
    """A model in qbench and in another program, each within a memory limit of the system."""

    peer: str = ""
    memory_bytes: int | None = None
    batch: int | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class PeerMetrics(JsonRow):
    """Seconds of a step in each turn.

    disk_s              if only the disk took time: read_bytes over its bandwidth
    times_as_fast       peer_s over qbench_s; most_times_as_fast: peer_s over disk_s
    """

    qbench_s: tuple[float, ...] = ()
    peer_s: tuple[float, ...] = ()
    disk_s: tuple[float, ...] = ()
    read_bytes: int | None = None
    times_as_fast: float | None = None
    most_times_as_fast: float | None = None
    busy_before: float | None = None


@dataclass(frozen=True, slots=True)
class BreakevenCase(TimedRow):
    """A question of `qbench breakeven`, and one alternative of its answer."""

    question: str = ""
    alternative: str = ""
    layers: int | None = None
    mass: float | None = None
    rounds: int | None = None


@dataclass(frozen=True, slots=True)
class BreakevenPoint(JsonRow):
    """One size: the speed of the alternative over the default's with its interval, as in `breakeven.verdict`."""

    size: int = 0
    choice: str | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    figures: dict[str, float] | None = None
    says: str | None = None


@dataclass(frozen=True, slots=True)
class BreakevenMetrics(JsonRow):
    """The points of an alternative, and the size from which it pays, see `breakeven.verdict`.

    axis   the size, with its unit
    """

    json_omits: ClassVar[tuple[str, ...]] = ("needed_below",)

    axis: str = ""
    points: tuple[BreakevenPoint, ...] = ()
    pays_from: int | None = None
    below: int | None = None
    conclusion: str | None = None
    needed_below: int | None = None
    busy_before: float | None = None
