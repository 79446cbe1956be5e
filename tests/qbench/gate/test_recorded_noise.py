"""The gate on recorded launches of unchanged code, drawn again: seldom red, and red where something got slower."""

from pathlib import Path

import numpy as np
import pytest
from support.gate_noise import DrawnGate, centred, recorded_turns

from qbench.gate import timed
from qbench.gate.base_commit import Tree
from qbench.gate.check import ALPHA, POWER, judge
from qbench.gate.launches import Subject
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork

SEE = 0.05
MOST_TURNS = 16  # the most that the default budget allows on the machine of the records
AS_RECORDED = recorded_turns()
RECORDINGS = centred(AS_RECORDED)
pytestmark = pytest.mark.skipif(not RECORDINGS, reason="no recorded gates in results/gate")


def run_gate(rng: np.random.Generator, slower: dict[str, float] | None = None, recordings=RECORDINGS) -> bool:
    """Whether it is red, on launches drawn as `in_turn` would have made them."""
    gate = DrawnGate(recordings, rng, slower or {})
    tree = Tree("drawn", Path(), Path())
    subjects = [
        Subject(name, ((tree, Path()),) * 2, SpeedWork(pp=512, tg=64), RunOptions(threads=1))
        for name in RECORDINGS[0][0]
    ]
    launches = {subject.name: [] for subject in subjects}
    for turn in range(MOST_TURNS):
        for name, launch in gate.turn().items():
            launches[name].append(launch)
        if turn + 1 >= timed.LEAST:
            checks = judge(timed.checks_in_turn(subjects, launches))
            if max(check.detectable for check in checks if check.gate == "speed") <= SEE:
                break
    return any(check.verdict == "worse" for check in checks)


def test_false_alarms():
    rng, runs = np.random.default_rng(11), 200
    assert sum(run_gate(rng) for _ in range(runs)) / runs <= ALPHA


def test_false_alarms_of_launches_as_they_were_recorded():
    """With whatever both sides of a recording differed by for all its time; a drawn side is either of them."""
    rng, runs = np.random.default_rng(13), 100
    assert sum(run_gate(rng, recordings=AS_RECORDED) for _ in range(runs)) / runs <= ALPHA


@pytest.mark.parametrize("which", ["every case", "one case"])
def test_a_slowdown_of_five_percent_is_found(which):
    rng, runs = np.random.default_rng(12), 50
    names = list(RECORDINGS[0][0])
    slower = dict.fromkeys(names if which == "every case" else names[:1], SEE)
    assert sum(run_gate(rng, slower) for _ in range(runs)) / runs >= POWER
