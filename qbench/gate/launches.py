"""Fresh processes of one tree, or of two in turn: the seconds of every round, and the memory that each took."""

import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from qbench.gate.base_commit import Tree
from qbench.measure.launch import PEAK, Launch
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork
from qbench.speed.interleaved import interleave
from qbench.speed.rounds import PHASES
from qbench.speed.timed_process import WORKER_FILE, TimedProcess, speed_process
from quant.errors import InputError
from quant.present import present

# Rounds of a launch, after the warm-up. Starting two processes takes seconds and a round a fraction of one, while the
# median of 20 samples scatters by less than the launches do among themselves.
ROUNDS = 20

# The newest module that the worker imports of the packages that it times.
WORKER_IMPORTS = "qbench.run.options"

Launches = dict[str, list[Launch]]  # name of the case -> its launches


@dataclass(frozen=True, slots=True)
class Subject:
    """The launched artifacts of one case: the one that each tree made itself, the base's first.

    options  how the artifact runs; they name the number of threads
    """

    name: str
    sides: tuple[tuple[Tree, Path], ...]
    case: SpeedWork
    options: RunOptions
    isa: str | None = None

    @property
    def clock(self) -> str:
        """Processor time for one thread, since others' work changes it least; else wall time."""
        return "cpu" if self.options.threads == 1 else "wall"

    @property
    def tokens(self) -> dict[str, int]:
        """phase -> how many a sample processes"""
        return {phase: self.case.batch * getattr(self.case, phase) for phase in PHASES if getattr(self.case, phase)}


def launch_all(
    groups: Sequence[Sequence[Subject]],
    enough: Callable[[Launches], bool],
    *,
    least: int,
    budget_s: float,
) -> Launches:
    """Launches of every subject in turn, so that a slow hour of the machine is not one subject's.

    groups     of subjects that share their processes, one after the other; which is first takes turns
    enough     True stops; called after each turn from `least` on
    budget_s   no further turn begins after it
    """
    found: Launches = {subject.name: [] for group in groups for subject in group}
    start, turn = time.monotonic(), 0
    while turn < least or (time.monotonic() - start < budget_s and not enough(found)):
        for group in groups:
            first = turn % len(group)
            order = [*group[first:], *group[:first]]
            for subject, launch in zip(order, launch_group(order), strict=True):
                found[subject.name].append(launch)
        turn += 1
    return found


def grouped(subjects: Iterable[Subject]) -> list[list[Subject]]:
    """Those together that can share processes: to start one takes longer than to time all of them."""
    groups: dict[tuple, list[Subject]] = {}
    for subject in subjects:
        groups.setdefault((subject.options.threads, subject.isa), []).append(subject)
    return list(groups.values())


def launch_group(subjects: Sequence[Subject]) -> list[Launch]:
    """One process a side runs all subjects; phases are timed in turn, and rounds are those after the warm-up."""
    launches = []
    with ExitStack() as stack:
        first = subjects[0]
        sides = [stack.enter_context(_process(first, tree, artifact)) for tree, artifact in first.sides]
        for subject in subjects:
            if subject is not first:
                for side, (_, artifact) in zip(sides, subject.sides, strict=True):
                    side.open(str(artifact), subject.options)
            rounds = interleave(sides, subject.case, threads=present(subject.options.threads))
            seconds = {phase: [rounds.steady(phase, side) for side in range(len(sides))] for phase in rounds.of}
            peaks = [side.call("memory", {})[PEAK] for side in sides] if subject is first else None
            launches.append(Launch(seconds, peaks))
    return launches


def peaks_of(launches: Iterable[Launch], side: int) -> list[int]:
    return [launch.peak_rss_bytes[side] for launch in launches if launch.peak_rss_bytes is not None]


def check_worker(tree: Tree) -> None:
    """raises InputError if this tree's worker cannot load the packages of `tree`"""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({WORKER_IMPORTS!r}) is None)"
    done = subprocess.run([str(tree.python), "-P", "-c", code], env=tree.env, capture_output=True)
    if done.returncode:
        raise InputError(
            f"{tree.name} is too old to be timed from here: it has no {WORKER_IMPORTS}; "
            "choose a later commit, or the records of a baseline run"
        )


def _process(subject: Subject, tree: Tree, artifact: Path) -> TimedProcess:
    return speed_process(
        str(artifact),
        subject.options,
        clock=subject.clock,
        # This tree's own worker times both sides: the timer is the same, only the timed code differs.
        command=(str(tree.python), "-P", WORKER_FILE),
        env=tree.env | ({"QBENCH_ISA": subject.isa} if subject.isa else {}),
    )
