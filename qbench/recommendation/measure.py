"""Judge candidates by measurement: from this machine's records if possible, otherwise through a sweep."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbench.comparison.kept_launches import joined, kept_launches
from qbench.measure.host.commit import code_version
from qbench.measure.host.machine import machine
from qbench.measure.metrics import Metrics
from qbench.measure.records.record import Record, read_records
from qbench.recommendation.candidates import Candidate
from qbench.recommendation.goal import Goal
from qbench.recommendation.heat import heat_windows
from qbench.recommendation.search import Measured
from qbench.run.case import Case
from qbench.run.work import CalibrationWork, QualityWork, SpeedWork
from qbench.store import latest_records
from qbench.sweeps.case_runner import Outcome
from qbench.sweeps.executor import LocalExecutor, Numbered, OnStage
from qbench.sweeps.suite.cases import make_cases, select_points
from qbench.sweeps.suite.rules import Rule
from qbench.sweeps.suite.suite import Suite
from qbench.sweeps.sweep import OnEvent, Selection, run_sweep
from qbench.words.written import real_path
from quant.present import present

STEPS = 32  # decoded and timed at the end of the context; the fill before them takes longer
REPETITIONS = 3
# Keys that a figure depends on, besides the section that measures it.
OF_BOTH = (
    "fingerprint",
    "recipe",
    "recipe_sha256",
    "kv_format",
    "policy",
    "compute",
    "division",
    "isa",
    "device",
    "calibration",
)
OF_QUALITY = (*OF_BOTH, "quality")
OF_SPEED = (*OF_BOTH, "threads", "batch")


class OpenExecutor(LocalExecutor):
    """Keeps its worker and the reference's logits from one sweep to the next, until its runner is closed."""

    def run(self, cases: Iterator[Numbered], on_stage: OnStage) -> Iterator[tuple[int, Outcome]]:
        for number, case in cases:
            yield number, self.runner.run(case, lambda stage, state, number=number: on_stage(number, stage, state))


class Judge:
    """Candidates of one model; `close` it at the end.

    folder    of the sweeps that measure missing figures; they resume there. The caller holds it, see `exclusive`
    known     folders whose records of this machine and code count
    """

    def __init__(
        self,
        model: str,
        goal: Goal,
        quality: QualityWork,
        folder: Path,
        known: Iterable[Path],
        *,
        threads: int | None = None,
        calibration: CalibrationWork | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.model, self.quality, self.folder, self.on_event = model, quality, folder, on_event
        self.threads, self.batch, self.calibration = threads, goal.batch, calibration
        self.executor = OpenExecutor(real_path(folder))
        steps = min(STEPS, goal.context)
        self.bench = SpeedWork(pp=0, tg=steps, depth=goal.context - steps, repetitions=REPETITIONS)
        folders = [path for path in (*known, folder) if path.is_dir() and any(path.rglob("*.jsonl"))]
        rows = latest_records(folders, [None]).values() if folders else ()
        launches = kept_launches([str(folder) for folder in folders]) if folders else {}
        counted = (_counted(joined(row, launches)) for row in rows if row.is_ok)
        self.rows: list[tuple[Case, Metrics]] = list(filter(None, counted))

    def close(self) -> None:
        self.executor.runner.close()

    def kld(self, candidates: Sequence[Candidate]) -> list[Measured]:
        if not candidates:
            return []
        return self.divergences(candidates, self.quality)

    def heat(self, candidates: Sequence[Candidate]) -> list[Measured]:
        windows = heat_windows(present(self.quality.max_windows))
        return self.divergences(candidates, replace(self.quality, max_windows=windows))

    def divergences(self, candidates: Sequence[Candidate], quality: QualityWork) -> list[Measured]:
        suite = self.suite(candidates, eval=quality)
        return self.measured(suite, candidates, is_same_quality, lambda row: row.quality and row.quality.mean_kld)

    def tps(self, candidate: Candidate) -> Measured:
        suite = self.speed_suite(candidate)
        (measured,) = self.measured(suite, [candidate], is_same_speed, lambda metrics: metrics.figure("tg_tok_s"))
        return replace(measured, peak_bytes=self.peak_bytes(candidate))

    def peak_bytes(self, candidate: Candidate) -> int | None:
        """Peak memory of the process that timed the candidate at exactly the goal's context; None: not timed.

        A fresh process takes more: a sweep's process is forked, and shared pages that it never touches are not counted.
        """
        suite = self.speed_suite(candidate)
        metrics = self.row(make_cases(suite, select_points(suite))[0], is_same_speed)
        if metrics is None or metrics.speed is None or metrics.speed.context != self.bench.longest:
            return None
        return metrics.memory and metrics.memory.peak_rss_bytes

    def quality_of(self, candidate: Candidate) -> Metrics | None:
        """The row with the candidate's quality, once it is measured."""
        suite = self.suite([candidate], eval=self.quality)
        return self.row(make_cases(suite, select_points(suite))[0], is_same_quality)

    def speed_suite(self, candidate: Candidate) -> Suite:
        return self.suite([candidate], bench=self.bench, batches=(self.batch,))

    def suite(self, candidates: Sequence[Candidate], **sections: Any) -> Suite:
        return Suite.of(
            "recommend",
            (self.model,),
            tuple(dict.fromkeys(candidate.recipe for candidate in candidates)),
            kv_formats=tuple(dict.fromkeys(candidate.kv_format for candidate in candidates)),
            threads=None if self.threads is None else (self.threads,),
            calibration=self.calibration,
            **sections,
        )

    def measured(
        self,
        suite: Suite,
        candidates: Sequence[Candidate],
        is_same: Callable[[Case, Case], bool],
        figure: Callable[[Metrics], float | None],
    ) -> list[Measured]:
        """The figure of each candidate; missing figures are measured first, in one sweep."""
        wanted = [(candidate.recipe, candidate.kv_format) for candidate in candidates]
        cases = {(case.recipe, case.kv_format): case for case in make_cases(suite, select_points(suite))}
        missing = [point for point in wanted if self.row(cases[point], is_same) is None]
        failed: dict[tuple[str | None, str | None], str | None] = {}
        if missing:
            only = tuple(
                Rule.of({"recipe": recipe, "kv_format": kv_format}, "recommend") for recipe, kv_format in missing
            )
            how = {"selection": Selection(only=only), "executor": lambda folder: self.executor, "is_held": True}
            result = run_sweep(suite, self.folder, self.on_event, **how)
            for row in read_records(result.records):
                if isinstance(row.case, Case) and row.case.model in suite.axes["model"]:
                    self.rows += filter(None, [_counted(row)])
                    failed[row.case.recipe, row.case.kv_format] = row.error
        return [self.told(self.row(cases[point], is_same), figure, failed.get(point)) for point in wanted]

    def told(self, row: Metrics | None, figure: Callable[[Metrics], float | None], error: str | None) -> Measured:
        if row is None:
            return Measured(None, error or "the measurement was interrupted")
        value = figure(row)
        error = None if value is not None else "its logits are not finite"
        return Measured(value, error, blocks=row.quality and row.quality.blocks)

    def row(self, case: Case, is_same: Callable[[Case, Case], bool]) -> Metrics | None:
        return next((metrics for known, metrics in reversed(self.rows) if is_same(known, case)), None)


def is_same_quality(case: Case, wanted: Case) -> bool:
    """Whether a row's case has the quality of another; its threads, batch and depth change no logit."""
    return all(getattr(case, name) == getattr(wanted, name) for name in OF_QUALITY)


def is_same_speed(case: Case, wanted: Case) -> bool:
    """Decoding as many tokens at the same depth; a prompt that was timed as well changes nothing."""
    if case.speed is None or wanted.speed is None:
        return False
    is_same_work = (case.speed.tg, case.speed.depth) == (wanted.speed.tg, wanted.speed.depth)
    return is_same_work and all(getattr(case, name) == getattr(wanted, name) for name in OF_SPEED)


def _counted(row: Record) -> tuple[Case, Metrics] | None:
    """The row's case and metrics, if it was measured on this machine by the code as it is now."""
    is_here = row.is_ok and row.machine.runs_like(machine()) and row.code == code_version().code
    case, metrics = row.case, row.metrics
    return (case, metrics) if is_here and isinstance(case, Case) and isinstance(metrics, Metrics) else None
