"""The gate on recorded launches of unchanged code, drawn again: seldom red, and red where something got slower."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qbench.gate import timed
from qbench.gate.base_commit import Tree
from qbench.gate.check import ALPHA, POWER, judge
from qbench.gate.launches import Subject
from qbench.measure.launch import Launch
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork

# Launches of unchanged code in turn, as they were recorded, and gates made of them by drawing again.

RECORDS = Path(__file__).parents[3] / "results" / "gate"
BLOCK = 3  # turns that stay together, so that a slow spell stays one

Turn = dict[str, Launch]  # name of a case -> its launch; all cases of a turn ran within seconds


def recorded_turns(folder: Path = RECORDS) -> list[list[Turn]]:
    """Turns of each kept gate of a commit against itself, in order."""
    rows = [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
    found = []
    for row in rows:
        commit, dirty = row["case"]["baseline_commit"]
        if commit == row["commit"] and not dirty and not row["dirty"]:
            launches = row["metrics"]["launches"]
            turns = zip(*launches.values(), strict=True)
            found.append([dict(zip(launches, map(Launch.from_json, turn), strict=True)) for turn in turns])
    return found


def centred(recordings: Sequence[Sequence[Turn]]) -> list[list[Turn]]:
    """The same, each case and phase of a recording with a median log ratio of 0: the sides were the same code."""
    return [_centred(turns) for turns in recordings]


def _centred(turns: Sequence[Turn]) -> list[Turn]:
    means = {}
    for case, launch in turns[0].items():
        for phase in launch.seconds:
            means[case, phase] = np.mean([_log_ratio(turn[case].seconds[phase]) for turn in turns])

    def centred_launch(case: str, launch: Launch) -> Launch:
        seconds = {phase: _faster(sides, means[case, phase]) for phase, sides in launch.seconds.items()}
        return replace(launch, seconds=seconds)

    return [{case: centred_launch(case, launch) for case, launch in turn.items()} for turn in turns]


def _log_ratio(sides: Sequence[Sequence[float]]) -> float:
    return float(np.median(np.log(np.divide(sides[1], sides[0]))))


def _faster(sides: Sequence[Sequence[float]], log_ratio: float) -> list[list[float]]:
    return [list(sides[0]), (np.asarray(sides[1]) * np.exp(-log_ratio)).tolist()]


class DrawnGate:
    """Turns of one simulated gate: blocks of recorded ones, the sides of a block exchanged or not, rounds drawn again.

    slower   name of a case -> how much more time its second side takes, 0.05 is 5 %
    """

    def __init__(
        self, recordings: Sequence[Sequence[Turn]], rng: np.random.Generator, slower: dict[str, float]
    ) -> None:
        self.recordings, self.rng, self.slower = recordings, rng, slower
        self.block: list[Turn] = []
        self.count = 0
        every = [turn for turns in recordings for turn in turns]
        self.peaks = {
            case: [turn[case].peak_rss_bytes for turn in every if turn[case].peak_rss_bytes is not None]
            for case in every[0]
        }

    def turn(self) -> Turn:
        if not self.block:
            turns = self.recordings[self.rng.integers(len(self.recordings))]
            start, order = self.rng.integers(len(turns)), self.rng.permutation(2)
            picked = [turns[(start + i) % len(turns)] for i in range(BLOCK)]
            self.block = [{case: self.drawn(case, of, order) for case, of in turn.items()} for turn in picked]
        turn = self.block.pop(0)
        first = list(turn)[self.count % len(turn)]  # whose peak is reported, as in a real gate
        pairs = self.peaks[first]
        peaks = [pairs[self.rng.integers(len(pairs))][side] for side in self.rng.permutation(2)]
        turn[first] = replace(turn[first], peak_rss_bytes=peaks)
        self.count += 1
        return turn

    def drawn(self, case: str, launch: Launch, order: np.ndarray) -> Launch:
        found = {}
        for phase, sides in launch.seconds.items():
            # Rounds in runs of half their number: a slow round is often followed by another.
            count = len(sides[0])
            starts = self.rng.integers(count, size=2)
            rounds = np.concatenate([(start + np.arange((count + 1) // 2)) % count for start in starts])
            base, now = (np.asarray(sides[side])[rounds] for side in order)
            found[phase] = [base, now * (1 + self.slower.get(case, 0.0))]
        return Launch(found)


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
