"""The checks that come of launches: speed, and the peak of memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from qbench.gate.base_commit import Tree
from qbench.gate.check import Check, judge, sees_slowdown
from qbench.gate.launches import ROUNDS, Launches, Subject, grouped, launch_all, peaks_of
from qbench.gate.measure import artifact_of
from qbench.gate.memory import IN_TURN, OTHER_HOURS, peak_checks
from qbench.gate.options import GateOptions
from qbench.gate.pairing import Pair
from qbench.gate.speed import apart_checks, in_turn_checks
from qbench.run.choices import AUTO_ISA
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork
from qbench.sweeps.suite.grid import chosen_kv_format
from quant.present import present

LEAST = 8  # launches before the first look at how far they scatter: from fewer that is a guess
ALONE = 3  # launches of one tree, next to those that a baseline's records hold: peaks of memory scatter little

Say = Callable[[str], None]


def in_turn(
    pairs: Sequence[Pair], trees: tuple[Tree, Tree], options: GateOptions, others: Sequence[Check], say: Say
) -> tuple[list[Check], Launches]:
    """Both trees in turn, until a slowdown of `options.see` would be found or the budget is over.

    others   the gate's other checks, among which these have to hold
    """

    def enough(launches: Launches) -> bool:
        sees = sees_slowdown(judge([*others, *checks_in_turn(subjects, launches)]))
        say(f"{len(launches[subjects[0].name])} launches would find a slowdown of {100 * sees:.1f} %")
        return sees <= options.see

    subjects = [subject_of(pair, trees, options.suite) for pair in pairs]
    groups = grouped(subjects)
    # Each is first in a process at least twice: from then on its peak has something to be compared with.
    least = max(LEAST, 2 * max(map(len, groups)))
    launches = launch_all(groups, enough, least=least, budget_s=options.budget_s)
    return checks_in_turn(subjects, launches), launches


def checks_in_turn(subjects: Sequence[Subject], launches: Launches) -> list[Check]:
    peaks = {name: (peaks_of(found, 0), peaks_of(found, 1)) for name, found in launches.items()}
    speeds = (in_turn_checks(subject.name, launches[subject.name], subject.tokens) for subject in subjects)
    return [*peak_checks(peaks, IN_TURN), *chain.from_iterable(speeds)]


def alone(pairs: Sequence[Pair], this: Tree, suite: Path) -> tuple[list[Check], Launches]:
    """This tree's launches, next to those that the baseline's rows hold, as a report.

    Speed, because the machine does other things now than then. Peaks, because they include Python's packages, and the
    environment of the baseline may have others.
    """
    subjects = [subject_of(pair, (this,), suite) for pair in pairs]
    launches = launch_alone(subjects)
    peaks, speeds = {}, []
    for pair, subject in zip(pairs, subjects, strict=True):
        sides = present(pair.baseline.figures.launches), launches[pair.name]
        peaks[pair.name] = peaks_of(sides[0], 0), peaks_of(sides[1], 0)
        speeds += apart_checks(pair.name, *sides, subject.tokens)
    reported = [replace(check, is_gate=False) for check in peak_checks(peaks, OTHER_HOURS)]
    return [*reported, *speeds], launches


def launch_alone(subjects: Sequence[Subject]) -> Launches:
    """Each in processes of its own, whose peak is then its own."""
    return launch_all([[subject] for subject in subjects], lambda launches: True, least=ALONE, budget_s=0)


def subject_of(pair: Pair, trees: Sequence[Tree], suite: Path) -> Subject:
    """What to launch of a case: base and this tree with the artifact that each made, or this tree alone."""
    case, rows = pair.now.model_case, (pair.baseline, pair.now)[-len(trees) :]
    work = present(case.speed)
    return Subject(
        pair.name,
        tuple((tree, artifact_of(tree, suite, row)) for tree, row in zip(trees, rows, strict=True)),
        SpeedWork(work.pp, work.tg, work.depth, batch=case.batch, repetitions=ROUNDS),
        RunOptions(kv_format=chosen_kv_format(case), threads=present(case.threads)),
        isa=None if case.isa == AUTO_ISA else case.isa,
    )
