"""Relaxed limits, for a goal that no candidate meets."""

from collections.abc import Sequence
from dataclasses import dataclass

from qbench.plan.fits import largest
from qbench.recommendation.candidates import Candidate
from qbench.recommendation.goal import Goal
from qbench.recommendation.search import Verdict
from quant.present import present


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One limit, as far as it has to give way, and who meets it then."""

    limit: str  # "memory_bytes", "context", "batch", "tps"
    asked: float
    enough: float
    candidate: Candidate

    @property
    def change(self) -> float:
        """Distance from the requested limit: 0.5 is half as much again, or as much down to two thirds."""
        return max(self.asked / self.enough, self.enough / self.asked) - 1


def relaxations(goal: Goal, verdicts: Sequence[Verdict]) -> list[Relaxation]:
    """Limits that would be enough, each alone, the nearest first; empty if the model cannot run at all."""
    slow = [verdict for verdict in verdicts if verdict.outcome == "speed"]
    large = [verdict for verdict in verdicts if verdict.outcome in ("memory", "peak")]
    found = []
    if slow:
        fastest = max(slow, key=lambda verdict: present(verdict.tps))
        found.append(Relaxation("tps", present(goal.tps), present(fastest.tps), fastest.candidate))
    elif large:
        least = min(large, key=lambda verdict: present(verdict.short))
        enough = goal.memory_bytes + present(least.short)
        found.append(Relaxation("memory_bytes", goal.memory_bytes, enough, least.candidate))
        predicted_large = [verdict.candidate for verdict in large if verdict.outcome == "memory"]
        for limit in ("context", "batch"):
            most = {candidate: _most(goal, limit, candidate) for candidate in predicted_large}
            best = max(most, key=most.__getitem__, default=None)
            if best is not None and most[best]:
                found.append(Relaxation(limit, getattr(goal, limit), most[best], best))
    return sorted(found, key=lambda relaxation: relaxation.change)


def _most(goal: Goal, limit: str, candidate: Candidate) -> int:
    """The largest context or batch with which the candidate keeps to the memory; 0: not even 1 does."""
    asked = {"context": goal.context, "batch": goal.batch}

    def fits(number: int) -> bool:
        return present(candidate.predictor).at(**(asked | {limit: number})).total_bytes <= goal.model_bytes

    return largest(fits, asked[limit] - 1)
