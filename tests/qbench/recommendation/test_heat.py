"""Races end in the same answer as measuring everything, and err no more often than promised."""

import random
from dataclasses import replace

import numpy as np
import pytest
from support.data import REPO
from support.table_judge import TableJudge, chosen_of, memory_of

from qbench.measure.quality_figures import Blocks
from qbench.measure.records.record import read_records
from qbench.recommendation.candidates import Candidate
from qbench.recommendation.goal import Goal
from qbench.recommendation.heat import Heat, heat_windows
from qbench.recommendation.search import GAIN, Measured, search
from qbench.run.case import Case
from qbench.statistics.estimate import ALPHA

WINDOWS, SHARE = 24, 4
GOAL = Goal(1 << 40, 512)


class WindowJudge(TableJudge):
    """Divergences by window, of which the heat sees every SHARE-th."""

    def __init__(self, by_window: dict[Candidate, list[float]]) -> None:
        super().__init__({}, {})
        self.by_window, self.in_heat = by_window, 0

    def kld(self, candidates):
        self.judged += candidates
        return [told(self.by_window[one]) for one in candidates]

    def heat(self, candidates):
        self.in_heat += len(candidates)
        return [told(self.by_window[one][::SHARE]) for one in candidates]


def told(values: list[float]) -> Measured:
    return Measured(float(np.mean(values)), blocks=Blocks("window", [1000] * len(values), kld=values))


def point(recipe: str) -> Candidate:
    return Candidate(recipe, "f32", memory_of(1))


def answers(by_window: dict[str, list[float]]) -> tuple[Candidate, Candidate, WindowJudge]:
    """With the heat, without it, and the judge of the heat."""
    judge = WindowJudge({point(name): values for name, values in by_window.items()})
    raced = chosen_of(search(list(judge.by_window), GOAL, judge, GAIN, SHARE))
    whole = chosen_of(search(list(judge.by_window), GOAL, WindowJudge(judge.by_window), 1.0))
    return raced[0], whole[0], judge


def test_a_heat_needs_enough_windows():
    assert [heat_windows(count) for count in (24, 12, 10, 25, 48)] == [6, 6, None, None, 12]


def test_points_that_are_clearly_worse_are_measured_only_in_the_heat():
    rng = np.random.default_rng(1)
    common = rng.lognormal(0, 0.5, WINDOWS)
    klds = {name: (common * rng.lognormal(1.4 * place, 0.1, WINDOWS)).tolist() for place, name in enumerate("abcdefgh")}
    raced, whole, judge = answers(klds)
    assert raced == whole == point("a") and judge.in_heat == 8
    assert {one.recipe for one in judge.judged} == set("abc")  # the answer and its runners-up
    verdicts = {one.candidate.recipe: one for one in search(list(judge.by_window), GOAL, judge, GAIN, SHARE)}
    assert verdicts["h"].outcome == "dropped" and "surely farther" in (verdicts["h"].why or "")


def test_a_heat_of_other_windows_decides_nothing():
    near, far = (Blocks("window", [10] * 12, kld=[value] * 12) for value in (0.1, 9.0))
    assert not Heat(4, 2).is_beaten(replace(far, tokens=[10] * 6, kld=[9.0] * 6), near)


@pytest.mark.parametrize("races", [150, pytest.param(2000, marks=pytest.mark.exhaustive("many times the races"))])
def test_the_best_point_rarely_loses_in_the_heat(races):
    """The worst case: all points are equally good, so that chance alone decides."""
    rng, points = np.random.default_rng(2), 6
    lost = 0
    for _ in range(races):
        common = rng.lognormal(0, 0.7, WINDOWS)
        klds = common * rng.lognormal(0, 0.3, (points, WINDOWS))
        blocks = [told(values.tolist()).blocks for values in klds]
        own = told(klds[0][::SHARE].tolist()).blocks
        lost += any(Heat(SHARE, points).is_beaten(own, other) for other in blocks[1:])
    assert lost / races <= ALPHA + 3 * (ALPHA / races) ** 0.5


def recorded(model: str) -> dict[str, list[float]]:
    """Recipe -> divergence by window in the committed records."""
    rows = [row for file in sorted((REPO / "results" / "quality").rglob("*.jsonl")) for row in read_records(file)]
    found = {}
    for row in rows:
        if isinstance(row.case, Case) and row.case.model == model and row.is_ok and row.metrics.quality.blocks:
            blocks = row.metrics.quality.blocks
            if blocks.kld is not None and len(blocks.kld) == WINDOWS:
                found[row.case.recipe] = blocks.kld
    return found


@pytest.mark.parametrize("model", ["ref:llama", "ref:llama-outliers"])
def test_races_over_recorded_windows_choose_as_the_exhaustive_search(model):
    rng, known, same, spent = random.Random(3), recorded(model), 0, 0.0
    assert len(known) > 40
    for _ in range(20):
        order = rng.sample(range(WINDOWS), WINDOWS)
        some = rng.sample(sorted(known), 10)
        raced, whole, judge = answers({name: [known[name][i] for i in order] for name in some})
        same += raced == whole
        spent += judge.in_heat / SHARE + len(judge.judged)
    assert same >= 19
    assert spent < 0.8 * 20 * 10  # passes over all windows
