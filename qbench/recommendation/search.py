"""The search: memory is predicted for all, quality is measured if it can matter, speed until the answer is certain.

The answer is the point of least measured KLD among those that meet the goal, of equals the smaller. Two rules save
measurements and cannot change it: points over the memory are out, and speed is measured in the order of KLD, so that
the first one fast enough is the best. A third rests on the assumption `gain`: another KV format than a
recipe's most precise one may bring it nearer to the unquantized model, but by no more than that share of its KLD. A
recipe's other KV formats are measured wherever they could then still be the answer or a runner-up. A fourth is the
heat: recipes are first measured on a part of the text, and on all of it only if they may still win.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from qbench.measure.quality_figures import Blocks
from qbench.recommendation.candidates import Candidate
from qbench.recommendation.goal import Goal
from qbench.recommendation.heat import Heat
from quant.present import present

RUNNERS_UP = 2
# The errors of weights and of keys and values are not of one sign, so that a coarse KV format may undo a little of a
# coarse recipe's error. Over 4 windows the most is 11 % of the KLD among ref:llama's 50 points (bf16 with kv-f16; fewer
# tokens, more chance); twice that is allowed for.
GAIN = 0.25


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure of a candidate, or the reason why it is missing.

    peak_bytes   of its process, if it was seen
    blocks       sums of a divergence by window of text
    """

    value: float | None
    error: str | None = None
    peak_bytes: int | None = None
    blocks: Blocks | None = None


class Judge(Protocol):
    """Measures candidates."""

    def kld(self, candidates: Sequence[Candidate]) -> list[Measured]:
        """Mean divergence from the unquantized model, nats."""
        ...

    def heat(self, candidates: Sequence[Candidate]) -> list[Measured]:
        """The same on the windows of the heat, with the sums by window; asked for only if there is a heat."""
        ...

    def tps(self, candidate: Candidate) -> Measured:
        """Tokens a second as the goal means them."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a candidate.

    outcome   "answer", "runner-up", "worse" (meets the memory, not as near to the model), "memory" (predicted),
              "peak" (its process exceeded the memory when it was timed), "speed", "not measured" (cannot beat a
              measured one), "dropped" (surely worse in the heat), "unfit" (not for this model), "failed" (while
              measured)
    short     by how much it misses: bytes or tokens per second
    """

    candidate: Candidate
    outcome: str
    why: str | None = None
    kld: float | None = None
    tps: float | None = None
    short: float | None = None


def search(
    candidates: Sequence[Candidate], goal: Goal, judge: Judge, gain: float = GAIN, share: int | None = None
) -> list[Verdict]:
    """A verdict on each: the answer and its runners-up in front, by KLD, then the others as they were given.

    candidates   of one recipe, the most precise KV format first
    gain         share of a recipe's KLD that another KV format may save; 1: all that fit are measured
    share        all windows over those of the heat; None: no heat
    returns      runners-up are of other recipes than the answer and each other: each recipe at its best
    """
    return _Search(goal, judge, gain, share).run(candidates)


class _Search:
    def __init__(self, goal: Goal, judge: Judge, gain: float, share: int | None) -> None:
        self.goal, self.judge, self.gain, self.share = goal, judge, gain, share
        self.heat: Heat | None = None
        self.heats: dict[Candidate, Measured] = {}  # points that were measured in the heat alone
        self.blocks: dict[Candidate, Blocks | None] = {}
        self.verdicts: dict[Candidate, Verdict] = {}
        self.ladders: dict[str, list[Candidate]] = defaultdict(list)  # recipe -> KV formats that are not measured
        self.klds: dict[Candidate, float] = {}
        self.speeds: dict[Candidate, Measured] = {}
        self.first: dict[str, Candidate] = {}  # recipe -> the most precise point that could be measured

    def run(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        for candidate in candidates:
            self.admit(candidate)
        self.measure_first(list(self.ladders))
        best: list[Verdict] = []
        while len(best) <= RUNNERS_UP:
            taken = {verdict.candidate.recipe for verdict in best}
            open_points = [one for one in self.klds if one not in self.verdicts and one.recipe not in taken]
            nearest = min(open_points, key=lambda one: (self.klds[one], one.total_bytes), default=None)
            contenders = self.contenders(nearest, taken)
            recipe = None if contenders else self.to_widen(taken, self.klds[nearest] if nearest else None)
            if contenders:
                self.measure(contenders)
            elif recipe is not None:
                self.widen(recipe)
            elif nearest is None:
                break
            elif self.is_fast(nearest):
                best.append(self.verdict(nearest, "runner-up" if best else "answer"))
        self.leave_out({verdict.candidate for verdict in best})
        return best + [self.verdicts[candidate] for candidate in candidates if candidate in self.verdicts]

    def admit(self, candidate: Candidate) -> None:
        if candidate.unfit is not None:
            self.verdicts[candidate] = Verdict(candidate, "unfit", candidate.unfit)
        elif candidate.total_bytes > self.goal.model_bytes:
            short = candidate.total_bytes - self.goal.model_bytes
            self.verdicts[candidate] = Verdict(candidate, "memory", short=short)
        else:
            self.ladders[candidate.recipe].append(candidate)

    def measure_first(self, recipes: Sequence[str]) -> None:
        """The most precise KV format of each recipe; if that fails, the next."""
        while recipes := [recipe for recipe in recipes if recipe not in self.first and self.ladders[recipe]]:
            firsts = [self.ladders[recipe].pop(0) for recipe in recipes]
            if self.share is None:
                self.measure(firsts)
            else:
                self.run_heat(firsts)
            self.first |= {one.recipe: one for one in firsts if one in self.klds or one in self.heats}
        if self.share is not None:
            self.heat = Heat(self.share, len(self.heats))

    def run_heat(self, candidates: Sequence[Candidate]) -> None:
        for candidate, measured in zip(candidates, self.judge.heat(candidates), strict=True):
            if measured.value is None:
                self.verdicts[candidate] = Verdict(candidate, "failed", measured.error)
            else:
                self.heats[candidate] = measured

    def contenders(self, nearest: Candidate | None, taken: set[str]) -> list[Candidate]:
        """Points of the heat that may be nearer than the nearest one measured on all windows."""
        waiting = [one for one in self.heats if one.recipe not in taken]
        if nearest is None:
            return sorted(waiting, key=lambda one: present(self.heats[one].value))[:1]
        return [one for one in waiting if not self.is_beaten(one, nearest)]

    def is_beaten(self, candidate: Candidate, by: Candidate) -> bool:
        """Whether the point, and its recipe with any other KV format, is surely farther from the model."""
        own, other = self.heats[candidate].blocks, self.blocks[by]
        gain = self.gain if self.ladders[candidate.recipe] else 0.0
        return own is not None and other is not None and present(self.heat).is_beaten(own, other, gain)

    def measure(self, candidates: Sequence[Candidate]) -> None:
        for candidate, measured in zip(candidates, self.judge.kld(candidates), strict=True):
            self.heats.pop(candidate, None)
            self.blocks[candidate] = measured.blocks
            if measured.value is None:
                self.verdicts[candidate] = Verdict(candidate, "failed", measured.error)
            else:
                self.klds[candidate] = measured.value

    def to_widen(self, taken: set[str], kld: float | None) -> str | None:
        """The recipe with the most promising other KV formats, if they may beat the measured points."""
        waiting = [
            recipe
            for recipe, first in self.first.items()
            if recipe not in taken and self.ladders[recipe] and first in self.klds
        ]
        recipe = min(waiting, key=self.bound, default=None)
        return recipe if recipe is not None and (kld is None or self.bound(recipe) <= kld) else None

    def bound(self, recipe: str) -> float:
        """The least KLD that the recipe is taken to have with any of its KV formats."""
        return self.klds[self.first[recipe]] * (1 - self.gain)

    def widen(self, recipe: str) -> None:
        """Measures the recipe's other KV formats; of a recipe that is too slow, those alone that are fast enough."""
        waiting, self.ladders[recipe] = self.ladders[recipe], []
        if not self.is_fast(self.first[recipe]):
            waiting = [candidate for candidate in waiting if self.is_fast(candidate)]
        self.measure(waiting)

    def is_fast(self, candidate: Candidate) -> bool:
        """Whether it is as fast as asked, within the memory when timed; otherwise its verdict gives the reason."""
        wanted = self.goal.tps
        if wanted is None:
            return True
        if candidate not in self.speeds:
            self.speeds[candidate] = self.judge.tps(candidate)
        measured, goal = self.speeds[candidate], self.goal
        if measured.value is None:
            self.verdicts[candidate] = self.verdict(candidate, "failed", measured.error)
        elif measured.peak_bytes is not None and measured.peak_bytes > goal.memory_bytes:
            self.verdicts[candidate] = self.verdict(candidate, "peak", short=measured.peak_bytes - goal.memory_bytes)
        elif measured.value < wanted:
            self.verdicts[candidate] = self.verdict(candidate, "speed", short=wanted - measured.value)
        return candidate not in self.verdicts

    def verdict(
        self, candidate: Candidate, outcome: str, why: str | None = None, short: float | None = None
    ) -> Verdict:
        """With the figures that are known."""
        speed = self.speeds.get(candidate)
        return Verdict(candidate, outcome, why, self.klds.get(candidate), speed and speed.value, short)

    def leave_out(self, chosen: set[Candidate]) -> None:
        for candidate in self.klds:
            if candidate not in self.verdicts and candidate not in chosen:
                self.verdicts[candidate] = self.verdict(candidate, "worse")
        for candidate, measured in self.heats.items():
            why = f"kld {measured.value:.2e} on the first part of the text, surely farther than those"
            self.verdicts[candidate] = Verdict(candidate, "dropped", why)
        for recipe, ladder in self.ladders.items():
            for candidate in ladder:
                why = (
                    f"even {self.gain:.0%} nearer than with {self.first[recipe].kv_format} it would not be among these"
                )
                self.verdicts[candidate] = Verdict(candidate, "not measured", why)
