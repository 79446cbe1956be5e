"""Answers of `recommend`: one data class per kind of point, as `--json` prints them."""

from dataclasses import dataclass
from typing import ClassVar

from qbench.measure.host.commit import CodeVersion
from qbench.recommendation.goal import Goal
from quant.json_data import JsonData


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPoint(JsonData):
    """A recipe with a KV format, and its outcome. Fields as in `search.Verdict`."""

    recipe: str
    kv_format: str
    outcome: str
    total_bytes: int | None
    kld: float | None
    tps: float | None
    short: float | None
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint(JudgedPoint):
    """A point that meets the goal. artifact: its file, if it is kept"""

    resident_bytes: int
    kv_bytes: int
    workspace_bytes: int
    runtime_bytes: int
    peak_rss_bytes: int | None
    kld_interval: list[float] | None
    same_top: float | None
    perplexity: float | None
    bits_per_weight: float | None
    artifact: str | None


@dataclass(frozen=True, slots=True)
class MoreKld(JsonData):
    """How much more a runner-up diverges than the answer, with the 95 % interval."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp(MeasuredPoint):
    """kld_more: None if the texts' blocks do not pair"""

    kld_more: MoreKld | None


@dataclass(frozen=True, slots=True)
class RelaxedLimit(JsonData):
    """One limit, as far as it has to give way, and the point that meets it then."""

    limit: str
    asked: float
    enough: float
    recipe: str
    kv_format: str


@dataclass(frozen=True, slots=True)
class Recommendation(JsonData):
    """The point of least KLD that meets the goal, and the outcome of all others.

    answer       None if no point meets the goal
    relaxations  of single limits, for each of which a point exists; empty if there is an answer
    """

    json_flat: ClassVar[tuple[str, ...]] = ("goal", "code")

    model: str
    goal: Goal
    answer: MeasuredPoint | None
    runners_up: list[RunnerUp]
    others: list[JudgedPoint]
    relaxations: list[RelaxedLimit]
    machine: str
    code: CodeVersion
