"""The rows of `qbench plan --goal` and `qbench breakeven`: placements, and sizes from which a choice pays."""

from dataclasses import dataclass

from qbench.measure.records.kept_kinds import ModelRow, TimedRow
from qbench.measure.step_time import StepTime
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
    """The points of an alternative, and the size from which it pays. axis: the size, with its unit"""

    axis: str = ""
    points: tuple[BreakevenPoint, ...] = ()
    pays_from: int | None = None
    below: int | None = None
    conclusion: str | None = None
    busy_before: float | None = None
