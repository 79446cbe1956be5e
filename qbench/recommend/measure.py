"""Judging candidates by measurement: what this machine's records tell already, the rest through a sweep of its own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbench.measure.host.commit import code_version
from qbench.measure.host.machine import machine
from qbench.measure.records.record import read_records
from qbench.recommend.candidates import Candidate
from qbench.recommend.goal import Goal
from qbench.recommend.search import Measured
from qbench.speed.speed_case import SpeedCase
from qbench.store import latest_records
from qbench.sweep.executor import LocalExecutor, Numbered, OnStage
from qbench.sweep.suite.cases import Case, make_cases, plan_points
from qbench.sweep.suite.rules import Rule
from qbench.sweep.suite.suite import EvalSettings, Suite
from qbench.sweep.sweep import OnEvent, Selection, run_sweep

STEPS = 32  # decoded and timed at the end of the context; the fill before them takes longer
REPETITIONS = 3
# What a figure depends on, besides the section that measures it.
OF_BOTH = (
    "fingerprint",
    "recipe",
    "recipe_sha256",
    "cache",
    "cache_kind",
    "products",
    "isa",
    "device",
    "calibration",
)
OF_QUALITY = (*OF_BOTH, "eval")
OF_SPEED = (*OF_BOTH, "threads", "batch")

Record = dict[str, Any]


class OpenExecutor(LocalExecutor):
    """Keeps its worker and the reference's logits from one sweep to the next, until its runner is closed."""

    def run(self, cases: Iterator[Numbered], on_stage: OnStage) -> Iterator[tuple[int, Record]]:
        for number, case in cases:
            yield number, self.runner.run(case, lambda stage, state, number=number: on_stage(number, stage, state))


class Judge:
    """Candidates of one model; `close` it at the end.

    folder    of the sweeps that measure what is missing; they resume there. The caller holds it, see `exclusive`
    known     folders whose records of this machine and code count
    """

    def __init__(
        self,
        model: str,
        goal: Goal,
        quality: EvalSettings,
        folder: Path,
        known: Iterable[Path],
        *,
        threads: int | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.model, self.quality, self.folder, self.on_event = model, quality, folder, on_event
        self.threads, self.batch = threads, goal.batch
        self.executor = OpenExecutor(folder.resolve())
        steps = min(STEPS, goal.context)
        self.bench = SpeedCase(pp=0, tg=steps, depth=goal.context - steps, repetitions=REPETITIONS)
        folders = [path for path in (*known, folder) if path.is_dir() and any(path.rglob("*.jsonl"))]
        rows = latest_records(folders, [None]).values() if folders else ()
        self.records = [row for row in rows if _counts(row)]

    def close(self) -> None:
        self.executor.runner.close()

    def kld(self, candidates: Sequence[Candidate]) -> list[Measured]:
        if not candidates:
            return []
        suite = self.suite(candidates, eval=self.quality)
        return self.measured(suite, candidates, is_same_quality, lambda row: row["metrics"].get("kld", {}).get("mean"))

    def tps(self, candidate: Candidate) -> Measured:
        suite = self.speed_suite(candidate)
        (measured,) = self.measured(suite, [candidate], is_same_speed, lambda row: row["metrics"].get("tg_tok_s"))
        return replace(measured, peak_bytes=self.peak_bytes(candidate))

    def peak_bytes(self, candidate: Candidate) -> int | None:
        """Of the process that timed the candidate at the goal's context, and nothing longer; None: not timed.

        A process of one's own takes more: a sweep's is forked, and what it shares untouched does not count as its own.
        """
        suite = self.speed_suite(candidate)
        metrics = (self.row(make_cases(suite, plan_points(suite))[0], is_same_speed) or {}).get("metrics", {})
        return metrics.get("peak_rss_bytes") if metrics.get("context") == self.bench.longest else None

    def record(self, candidate: Candidate) -> Record | None:
        """The row that tells the candidate's quality, once it is measured."""
        suite = self.suite([candidate], eval=self.quality)
        return self.row(make_cases(suite, plan_points(suite))[0], is_same_quality)

    def speed_suite(self, candidate: Candidate) -> Suite:
        return self.suite([candidate], bench=self.bench, batches=(self.batch,))

    def suite(self, candidates: Sequence[Candidate], **sections: Any) -> Suite:
        return Suite(
            "recommend",
            (self.model,),
            tuple(dict.fromkeys(candidate.recipe for candidate in candidates)),
            caches=tuple(dict.fromkeys(candidate.cache for candidate in candidates)),
            threads=None if self.threads is None else (self.threads,),
            **sections,
        )

    def measured(
        self,
        suite: Suite,
        candidates: Sequence[Candidate],
        is_same: Callable[[Case, Case], bool],
        figure: Callable[[Record], float | None],
    ) -> list[Measured]:
        """The figure of each; what no row tells is measured first, in one sweep."""
        wanted = [(candidate.recipe, candidate.cache) for candidate in candidates]
        cases = {(case["recipe"], case["cache"]): case for case in make_cases(suite, plan_points(suite))}
        missing = [point for point in wanted if self.row(cases[point], is_same) is None]
        failed: dict[tuple[str, str], str] = {}
        if missing:
            only = tuple(Rule.of({"recipe": recipe, "cache": cache}, "recommend") for recipe, cache in missing)
            how = {"selection": Selection(only=only), "executor": lambda folder: self.executor, "is_held": True}
            result = run_sweep(suite, self.folder, self.on_event, **how)
            rows = [row for row in read_records(result.records) if row["case"]["model"] in suite.models]
            self.records += [row for row in rows if _counts(row)]
            failed = {(row["case"]["recipe"], row["case"]["cache"]): row["error"] for row in rows}
        return [self.told(self.row(cases[point], is_same), figure, failed.get(point)) for point in wanted]

    def told(self, row: Record | None, figure: Callable[[Record], float | None], error: str | None) -> Measured:
        if row is None:
            return Measured(None, error or "the measurement was interrupted")
        value = figure(row)
        return Measured(value, None if value is not None else "its logits are not finite")

    def row(self, case: Case, is_same: Callable[[Case, Case], bool]) -> Record | None:
        return next((row for row in reversed(self.records) if is_same(row["case"], case)), None)


def is_same_quality(case: Case, wanted: Case) -> bool:
    """Whether a row's case tells the quality of another; its threads, batch and depth change no logit."""
    return all(case.get(name) == wanted.get(name) for name in OF_QUALITY)


def is_same_speed(case: Case, wanted: Case) -> bool:
    """Decoding as many tokens at the same depth; a prompt that was timed as well changes nothing."""
    bench = case.get("bench")
    same_bench = bench and all(bench.get(name, 0) == wanted["bench"].get(name, 0) for name in ("tg", "depth"))
    return bool(same_bench) and all(case.get(name) == wanted.get(name) for name in OF_SPEED)


def _counts(row: Record) -> bool:
    """Whether a row was measured on this machine, by the code as it is now."""
    return row["status"] == "ok" and row["machine"]["id"] == machine()["id"] and row["code"] == code_version()["code"]
