"""The search: memory is predicted for all, quality measured where it can matter, speed until the answer is certain.

Two rules save measurements and change no answer: what exceeds the memory is out, and speed is measured in the order of
KLD, so that the first one fast enough is the best. A third rests on an assumption: coarser keys and values never
bring a recipe nearer to the unquantized model, so they are tried only where the more precise ones fail.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from qbench.recommend.candidates import Candidate
from qbench.recommend.goal import Goal

RUNNERS_UP = 2


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure of a candidate, or why there is none."""

    value: float | None
    error: str | None = None


class Judge(Protocol):
    """Measures candidates."""

    def kld(self, candidates: Sequence[Candidate]) -> list[Measured]:
        """Mean divergence from the unquantized model, nats."""
        ...

    def tps(self, candidate: Candidate) -> Measured:
        """Tokens a second as the goal means them."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a candidate.

    outcome   "answer", "runner-up", "worse" (meets the memory, not as near to the model), "memory", "speed",
              "not measured" (cannot beat what was), "unfit" (not for this model), "failed" (while measured)
    short     by how much it misses: bytes or tokens a second
    """

    candidate: Candidate
    outcome: str
    why: str | None = None
    kld: float | None = None
    tps: float | None = None
    short: float | None = None


def search(candidates: Sequence[Candidate], goal: Goal, judge: Judge) -> list[Verdict]:
    """A verdict on each: the answer and its runners-up in front, by KLD, then the others as they were given.

    candidates   of one recipe, the most precise KV format first
    """
    return _Search(goal, judge).run(candidates)


class _Search:
    def __init__(self, goal: Goal, judge: Judge) -> None:
        self.goal, self.judge = goal, judge
        self.verdicts: dict[Candidate, Verdict] = {}
        self.ladders: dict[str, list[Candidate]] = defaultdict(list)  # recipe -> KV formats still to try
        self.pool: list[tuple[float, int, Candidate]] = []  # KLD, bytes
        self.tps: dict[Candidate, float] = {}

    def run(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        for candidate in candidates:
            self.admit(candidate)
        self.measure([self.ladders[recipe].pop(0) for recipe in list(self.ladders)])
        best: list[Verdict] = []
        while self.pool and len(best) <= RUNNERS_UP:
            kld, _, candidate = self.pool.pop(0)
            if self.goal.tps is None or self.is_fast(candidate, kld):
                tps = self.tps.get(candidate)
                best.append(Verdict(candidate, "runner-up" if best else "answer", kld=kld, tps=tps))
            else:
                self.try_faster(candidate.recipe)
        self.leave_out()
        return best + [self.verdicts[candidate] for candidate in candidates if candidate in self.verdicts]

    def admit(self, candidate: Candidate) -> None:
        if candidate.unfit is not None:
            self.verdicts[candidate] = Verdict(candidate, "unfit", candidate.unfit)
        elif candidate.total_bytes > self.goal.memory_bytes:
            short = candidate.total_bytes - self.goal.memory_bytes
            self.verdicts[candidate] = Verdict(candidate, "memory", short=short)
        else:
            self.ladders[candidate.recipe].append(candidate)

    def measure(self, candidates: Sequence[Candidate]) -> None:
        """Into the pool, the nearest to the unquantized model first, of equals the smaller."""
        for candidate, measured in zip(candidates, self.judge.kld(candidates), strict=True):
            if measured.value is not None:
                self.pool.append((measured.value, candidate.total_bytes, candidate))
                continue
            self.verdicts[candidate] = Verdict(candidate, "failed", measured.error)
            if self.ladders[candidate.recipe]:
                self.measure([self.ladders[candidate.recipe].pop(0)])
        self.pool.sort(key=lambda entry: entry[:2])

    def is_fast(self, candidate: Candidate, kld: float | None = None) -> bool:
        """Whether it is as fast as asked; where it is not, its verdict says so."""
        if candidate not in self.tps:
            measured = self.judge.tps(candidate)
            if measured.value is None:
                self.verdicts[candidate] = Verdict(candidate, "failed", measured.error, kld)
                return False
            self.tps[candidate] = measured.value
        tps = self.tps[candidate]
        if tps < self.goal.tps:
            self.verdicts[candidate] = Verdict(candidate, "speed", None, kld, tps, self.goal.tps - tps)
        return tps >= self.goal.tps

    def try_faster(self, recipe: str) -> None:
        """The recipe's next KV format that is fast enough; its speed is the cheaper figure and so comes first."""
        while self.ladders[recipe]:
            candidate = self.ladders[recipe].pop(0)
            if self.is_fast(candidate):
                self.measure([candidate])
                return

    def leave_out(self) -> None:
        for kld, _, candidate in self.pool:
            self.verdicts[candidate] = Verdict(candidate, "worse", kld=kld, tps=self.tps.get(candidate))
        for recipe, ladder in self.ladders.items():
            for candidate in ladder:
                why = f"{recipe} meets the memory with more precise keys and values"
                self.verdicts[candidate] = Verdict(candidate, "not measured", why)
