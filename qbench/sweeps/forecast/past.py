"""Time and memory of cases on this machine, estimated from existing rows."""

import json
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from qbench.measure.metrics import Metrics
from qbench.measure.records.record import Record, case_key
from qbench.run.case import Case
from quant.json_data import plain


@dataclass(frozen=True, slots=True)
class Known:
    """seconds    of measuring a case, and how close its rows are: "measured" or `"alike"`"""

    seconds: float
    basis: str


class Past:
    """The rows of some machines, by the keys that they share with a case."""

    def __init__(self, machines: Collection[str]) -> None:
        self.machines = machines
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.quantize: dict[str, list[float]] = defaultdict(list)
        self.reference: dict[str, list[float]] = defaultdict(list)
        self.peak: dict[str, int] = {}

    def read(self, records: Iterable[Record]) -> "Past":
        for record in records:
            self.add(record)
        return self

    def add(self, record: Record) -> None:
        """Rows that failed, of another machine, or of no sweep say nothing of a case."""
        case, metrics = record.case, record.metrics
        if not record.is_ok or record.machine.id not in self.machines:
            return
        if not isinstance(case, Case) or not isinstance(metrics, Metrics) or case.kind is not None:
            return
        # Rows from before the whole was timed lack the start of their worker.
        seconds = metrics.seconds if metrics.wall_seconds is None else metrics.wall_seconds
        if seconds:
            for name in (record.key, *_likenesses(case)):
                self.seconds[name].append(seconds)
        if metrics.quantize_seconds is not None:
            self.quantize[_artifact(case)].append(metrics.quantize_seconds)
        if metrics.reference_seconds is not None:
            self.reference[case.model].append(metrics.reference_seconds)
        peak = (metrics.memory and metrics.memory.peak_rss_bytes) or 0
        for name in (record.key, *_likenesses(case)[:1]):
            self.peak[name] = max(self.peak.get(name, 0), peak)

    def measuring(self, case: Case) -> Known | None:
        """Seconds of the case itself, else of the same model and recipe, else of the same model, all measured in this
        way."""
        for name, basis in ((case_key(case), "measured"), *((name, "alike") for name in _likenesses(case))):
            if self.seconds.get(name):
                return Known(statistics.median(self.seconds[name]), basis)
        return None

    def quantizing(self, case: Case) -> float | None:
        found = self.quantize.get(_artifact(case))
        return statistics.median(found) if found else None

    def referencing(self, case: Case) -> float | None:
        found = self.reference.get(case.model)
        return statistics.median(found) if found else None

    def peak_rss_bytes(self, case: Case) -> int | None:
        """The most that the case, or one of its model and recipe, held."""
        return next(filter(None, (self.peak.get(name) for name in (case_key(case), *_likenesses(case)[:1]))), None)


def _artifact(case: Case) -> str:
    return f"{case.model} {case.recipe}"


def _likenesses(case: Case) -> tuple[str, str]:
    """Names that cases share if they take about as long, the nearer first: all but threads and instruction set."""
    parts = [case.quality, case.tasks, case.speed]
    work = json.dumps([*map(plain, parts), case.batch, case.compute, case.division], sort_keys=True)
    return f"{case.model} {case.recipe} {case.kv_format} {case.policy} {work}", f"{case.model} {work}"
