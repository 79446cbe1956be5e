"""A judge for `recommend` that answers from tables, and the answer by brute force over them."""

from collections.abc import Sequence
from dataclasses import replace

from qbench.recommendation.candidates import Candidate
from qbench.recommendation.search import RUNNERS_UP, Measured
from qbench.runtime.memory import MemoryParts


def memory_of(size: int) -> MemoryParts:
    """All of it weights"""
    return MemoryParts(
        weights_bytes=size,
        weights_by_format={},
        kv_bytes_per_token=0.0,
        resident_bytes=size,
        kv_bytes=0,
        workspace_bytes=0,
        total_bytes=size,
    )


class TableJudge:
    """Gives figures from a table and remembers the requests."""

    def __init__(
        self,
        klds: dict[Candidate, float | None],
        speeds: dict[Candidate, float | None],
        peaks: dict[Candidate, int] | None = None,
    ) -> None:
        self.klds, self.speeds, self.peaks = klds, speeds, peaks or {}
        self.judged: list[Candidate] = []
        self.timed: list[Candidate] = []

    def kld(self, candidates: Sequence[Candidate]) -> list[Measured]:
        self.judged += candidates
        return [_told(self.klds[candidate]) for candidate in candidates]

    def tps(self, candidate: Candidate) -> Measured:
        self.timed.append(candidate)
        return replace(_told(self.speeds[candidate]), peak_bytes=self.peaks.get(candidate))


def _told(value: float | None) -> Measured:
    return Measured(value, None if value is not None else "the worker was killed")


def brute_force(candidates, goal, judge) -> list[Candidate]:
    """The answer and its runners-up: of the points that meet the goal the nearest, one per recipe."""
    fit = [
        candidate
        for candidate in candidates
        if candidate.unfit is None
        and candidate.total_bytes + goal.runtime_bytes <= goal.memory_bytes
        and judge.klds[candidate] is not None
        and (goal.tps is None or (judge.speeds[candidate] or 0) >= goal.tps)
        and (goal.tps is None or judge.peaks.get(candidate, 0) <= goal.memory_bytes)
    ]
    fit.sort(key=lambda candidate: (judge.klds[candidate], candidate.total_bytes))
    nearest: dict[str, Candidate] = {}
    for candidate in fit:
        nearest.setdefault(candidate.recipe, candidate)
    return list(nearest.values())[: 1 + RUNNERS_UP]


def chosen_of(verdicts) -> list[Candidate]:
    chosen = [one for one in verdicts if one.outcome in ("answer", "runner-up")]
    assert [one.outcome for one in chosen] == ["answer", *["runner-up"] * RUNNERS_UP][: len(chosen)]
    return [one.candidate for one in chosen]
