"""Where the cases of a sweep run. The sweep keeps their order, resumes and writes; an executor only measures."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from qbench.measure.host.machine import machine
from qbench.run.case import Case
from qbench.sweeps.case_runner import CaseRunner, Outcome
from qbench.sweeps.job_runner import WORKER

Numbered = tuple[int, Case]
# (number of the case, "reference" | "quantize" | "measure", (done, total, activity))
OnStage = Callable[[int, str, tuple[int, int, str] | None], None]


class Executor(Protocol):
    """One place, or many, to measure cases in."""

    def machines(self) -> set[str]:
        """Ids of the machines whose earlier rows count as measured."""
        ...

    def run(self, cases: Iterator[Numbered], on_stage: OnStage) -> Iterable[tuple[int, Outcome]]:
        """Measures the cases of the iterator, and gives (number, outcome) back as each ends, in any order.

        The next case is taken when there is a place for it and not before: the sweep ends the iterator to stop early,
        and the cases taken by then are brought to their end.
        """
        ...


class LocalExecutor:
    """One case after another on this machine, in worker processes.

    folder   of the run: artifacts are kept in `artifacts`, `tmp` holds files that are not kept
    """

    def __init__(self, folder: Path, worker: tuple[str, ...] = WORKER) -> None:
        self.runner = CaseRunner(folder / "artifacts", folder / "tmp", worker)

    def machines(self) -> set[str]:
        return {machine().id}

    def run(self, cases: Iterator[Numbered], on_stage: OnStage) -> Iterator[tuple[int, Outcome]]:
        try:
            for number, case in cases:
                yield number, self.runner.run(case, lambda stage, state, number=number: on_stage(number, stage, state))
        finally:
            self.runner.close()
