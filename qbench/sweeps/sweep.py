"""`run_sweep`: every case of a suite measured once and recorded, whenever and however often it is started.

Everything unfinished is in `out_dir/tmp`, which a new run clears; artifacts move to `artifacts/` in one rename and
rows to `records.jsonl` in one write. So a sweep may be killed at any moment and started again.
"""

import fcntl
import math
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench import store
from qbench.measure.host.commit import code_version
from qbench.measure.records.record import Record, append_record, case_key, make_record
from qbench.run.axes import SUITE_AXES
from qbench.run.case import Case
from qbench.sweeps.executor import Executor, LocalExecutor
from qbench.sweeps.suite.cases import Selected, further_launches, make_cases, select_points
from qbench.sweeps.suite.rules import Rule
from qbench.sweeps.suite.suite import Suite
from qbench.words.written import real_path
from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class Selection:
    """The cases of a suite that a run measures, and their order.

    only      points that one of these rules matches; (): all
    shuffle   seed of their order; None: as the suite lists them
    fresh     measure cases again that the folder already holds
    limit     measure so many cases at most; None: all
    budget_s  begin no case after so many seconds of this run; None: however long it takes
    launches  processes that measure each speed, see `further_launches`; None: as the suite says
    """

    only: tuple[Rule, ...] = ()
    shuffle: int | None = None
    fresh: bool = False
    limit: int | None = None
    budget_s: float | None = None
    launches: int | None = None


@dataclass(frozen=True, slots=True)
class SweepEvent:
    """The current activity of a sweep, for a display."""

    kind: str  # "begin" once, then of each case "skipped", or "start", "progress" and "done" or "failed"
    index: int  # of the case, from 0
    total: int  # cases
    point: Case
    stage: str = ""  # "reference", "quantize", "measure"
    progress: tuple[int, int, str] | None = None
    record: Record | None = None
    cases: tuple[Case, ...] = ()  # of "begin": those that this run is going to measure
    varying: tuple[str, ...] = ()  # of "begin": the axes that have more than one value
    of_kind: str = ""  # of the case: "again" for a further launch
    warnings: tuple[str, ...] = ()  # of "done": lines on the quantization


@dataclass(frozen=True, slots=True)
class SweepResult:
    records: Path
    measured: int
    skipped: int
    failed: int
    left: int  # cases that wait for another run: it was stopped, or limited


OnEvent = Callable[[SweepEvent], None]


def run_sweep(
    suite: Suite,
    out_dir: str | Path,
    on_event: OnEvent | None = None,
    *,
    selection: Selection | None = None,
    executor: Callable[[Path], Executor] = LocalExecutor,
    stop: Callable[[], bool] = lambda: False,
    is_held: bool = False,
) -> SweepResult:
    """Measure the cases that `out_dir/records.jsonl` does not hold yet.

    A case counts as measured when a row has the same case and code, and the executor's machine; an edited text or
    recipe file makes another case. A case that fails is recorded with its error, and tried again by the next run.

    executor   called with the folder, gives the place in which cases run
    stop       asked before each case; True ends the run once the running cases have ended
    is_held    the caller has made the folder its own by `exclusive`, for several sweeps with one executor
    raises     InputError if a model cannot be opened, nothing is selected, out_dir cannot be written, or another sweep
               runs there; only the last two leave the folder behind
    """
    selection = selection or Selection()
    selected, cases = selected_cases(suite, selection)
    out_dir = real_path(out_dir)
    with nullcontext() if is_held else exclusive(out_dir):
        run = _Run(selected, cases, out_dir / "records.jsonl", executor(out_dir), on_event or (lambda event: None))
        return run.all(selection, stop)


def selected_cases(suite: Suite, selection: Selection) -> tuple[list[Selected], list[Case]]:
    """The points to measure and their cases, side by side. raises InputError as `run_sweep`"""
    selected = select(suite, selection)
    cases = make_cases(suite, selected)
    launches = selection.launches or suite.launches or 1
    if launches > 1 and "division" in suite.axes:
        raise InputError(
            f"suite {suite.name}: {launches} launches measure on one rank; leave them out, or the divisions"
        )
    more = further_launches(selected, cases, launches)
    if launches > 1 and not more:
        raise InputError(f"suite {suite.name}: {launches} launches measure speeds, and no case has one; leave them out")
    return [*selected, *(one for one, _ in more)], [*cases, *(case for _, case in more)]


def select(suite: Suite, selection: Selection) -> list[Selected]:
    """The points to measure, in the order of the selection. raises InputError as `select_points`"""
    chosen = select_points(suite, selection.only)
    if selection.shuffle is not None:
        random.Random(selection.shuffle).shuffle(chosen)
    return chosen


def varying(points: Sequence[Case]) -> tuple[str, ...]:
    """The axes that have more than one value in these points."""
    return tuple(axis.name for axis in SUITE_AXES if len({axis.value(point) for point in points}) > 1)


def measured_keys(records: Path, machines: set[str]) -> set[str]:
    """Keys of the cases that were measured on one of these machines by the code as it is now."""
    if not records.exists():
        return set()
    return store.measured_keys(records, machines, code_version().code)


@contextmanager
def exclusive(out_dir: Path) -> Iterator[None]:
    """Makes the folder this sweep's own, with an empty `tmp` that is gone afterwards."""
    temporary = out_dir / "tmp"
    try:
        (out_dir / "artifacts").mkdir(parents=True, exist_ok=True)
        descriptor = os.open(out_dir / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(f"{out_dir}: cannot write there: {error.strerror}; choose another folder") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(f"{out_dir}: another sweep runs there; wait for it or choose another folder") from None
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(descriptor)


class _Run:
    """One run: its cases, which of them are there already, and the one writer of their rows."""

    def __init__(
        self, selected: list[Selected], cases: list[Case], records: Path, executor: Executor, on_event: OnEvent
    ) -> None:
        self.selected, self.cases, self.records, self.executor = selected, cases, records, executor
        self.on_event = on_event
        self.counts = {"done": 0, "skipped": 0, "failed": 0}

    def all(self, selection: Selection, stop: Callable[[], bool]) -> SweepResult:
        held = set() if selection.fresh else measured_keys(self.records, self.executor.machines())
        missing = [case for case in self.cases if case_key(case) not in held]
        self.tell(
            "begin", 0, cases=tuple(missing[: selection.limit]), varying=varying([one.point for one in self.selected])
        )
        end = math.inf if selection.budget_s is None else time.monotonic() + selection.budget_s
        waiting = self.waiting(held, selection.limit, lambda: stop() or time.monotonic() > end)
        for index, outcome in self.executor.run(waiting, self.on_stage):
            record = make_record(self.cases[index], outcome.metrics, outcome.error, outcome.origin)
            append_record(self.records, record)
            self.tell("failed" if record.error else "done", index, record=record, warnings=outcome.warnings)
        left = len(self.cases) - sum(self.counts.values())
        return SweepResult(self.records, self.counts["done"], self.counts["skipped"], self.counts["failed"], left)

    def waiting(self, held: set[str], limit: int | None, stop: Callable[[], bool]) -> Iterator[tuple[int, Case]]:
        """The cases that are still to be measured, one whenever the executor has a place."""
        started = 0
        for index, case in enumerate(self.cases):
            if case_key(case) in held:
                self.tell("skipped", index)
            elif started != limit and not stop():
                started += 1
                self.tell("start", index)
                yield index, case

    def on_stage(self, index: int, stage: str, state: tuple[int, int, str] | None) -> None:
        self.tell("progress", index, stage=stage, progress=state)

    def tell(self, kind: str, index: int, **details: Any) -> None:
        if kind in self.counts:
            self.counts[kind] += 1
        of_kind, point = self.cases[index].kind or "", self.selected[index].point
        self.on_event(SweepEvent(kind, index, len(self.cases), point, of_kind=of_kind, **details))
