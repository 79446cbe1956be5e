"""Cases of a sweep on several ranks: rank 0 chooses and records them, and all ranks measure them together.

Rank 0 makes the reference's logits and the artifact in worker processes, as on one rank; the other ranks wait. The
measurement runs in the processes that have joined, so a rank that dies ends the sweep, and the same command goes on.
"""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from qbench.measure.metrics import Metrics
from qbench.progress import Progress
from qbench.run.case import Case
from qbench.run.rank_layout import RankError
from qbench.run.work import SpeedWork
from qbench.runtime.parallel import Ranks
from qbench.runtime.parallel.follow import signals_ignored
from qbench.speed.rank_bench import bench_on_ranks
from qbench.sweeps.case_runner import CaseRunner, OnStage, Outcome
from qbench.sweeps.executor import LocalExecutor, Numbered
from qbench.sweeps.executor import OnStage as OnNumbered
from qbench.sweeps.job import MeasureJob
from qbench.sweeps.job_runner import WORKER, JobFailed
from qbench.sweeps.jobs import measure
from quant.errors import InputError
from quant.present import present

CASE = "case"
END = ""


class RankExecutor(LocalExecutor):
    """One case after another, on all ranks; rank 0 has it.

    folder   of the run, on a file system of all hosts
    ranks    that have joined; the others are in `follow_cases`
    """

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        super().__init__(folder)
        self.ranks, self.runner = ranks, RankRunner(folder, ranks)

    def run(self, cases: Iterator[Numbered], on_stage: OnNumbered) -> Iterator[tuple[int, Outcome]]:
        with self.ranks.meeting.at_work():
            yield from super().run(cases, on_stage)
        self.ranks.meeting.tell(CASE, END)


class RankRunner(CaseRunner):
    """Cases that all ranks measure."""

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        super().__init__(folder / "artifacts", folder / "tmp", WORKER)
        self.ranks = ranks

    def measured(self, case: Case, artifact: Path, on_stage: OnStage) -> tuple[Metrics, float]:
        job = self.measurement(case, artifact)
        on_stage(job.name, None)
        start = time.perf_counter()
        self.ranks.meeting.tell(CASE, json.dumps(job.to_json()))
        metrics = measure_together(job, self.ranks, lambda *state: on_stage(job.name, state))
        return metrics, time.perf_counter() - start


def follow_cases(ranks: Ranks) -> None:
    """Measure the cases of rank 0 with it until it has no more. raises RankError if a rank ends or is late"""
    with signals_ignored():
        while (order := ranks.meeting.tell(CASE, "")[0]) != END:
            with suppress(JobFailed):  # rank 0 has the same error, and records it
                measure_together(MeasureJob.from_json(json.loads(order)), ranks, lambda *state: None)


def timed(job: MeasureJob, case: SpeedWork, progress: Progress) -> Metrics:
    return bench_on_ranks(job.artifact, case, job.options, progress)


def measure_together(job: MeasureJob, ranks: Ranks, progress: Progress) -> Metrics:
    """The figures of this rank. raises JobFailed on all ranks if one of them refuses the case"""
    ranks.divide(job.options.layout)
    found, error = None, ""
    try:
        found = measure(job, progress, timed=timed)
    except RankError:
        raise
    except (InputError, NotImplementedError) as refusal:
        error = " ".join(str(refusal).split())
    errors = ranks.meeting.tell("measured", error)
    if any(errors):
        raise JobFailed(next(filter(None, errors)))
    return present(found)
