"""What rows that are there tell of cases: how long such ones take on this machine, and how much memory."""

import json
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from qbench.measure.records.record import case_key
from qbench.sweep.suite.cases import Case


@dataclass(frozen=True, slots=True)
class Known:
    """seconds    of measuring a case, and how near the rows are that it was read from: "measured", "alike" """

    seconds: float
    basis: str


class Past:
    """The rows of some machines, by what they have in common with a case."""

    def __init__(self, machines: Collection[str]) -> None:
        self.machines = machines
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.quantize: dict[str, list[float]] = defaultdict(list)
        self.reference: dict[str, list[float]] = defaultdict(list)
        self.peak: dict[str, int] = {}

    def read(self, records: Iterable[dict[str, Any]]) -> "Past":
        for record in records:
            self.add(record)
        return self

    def add(self, record: dict[str, Any]) -> None:
        """Rows that failed, of another machine, or of no sweep say nothing of a case."""
        case, metrics = record["case"], record["metrics"]
        if record["status"] != "ok" or record["machine"]["id"] not in self.machines or case.get("kind") is not None:
            return
        # Rows from before the whole was timed lack the start of their worker.
        seconds = metrics.get("wall_seconds", metrics.get("seconds"))
        for name in (record["key"], *_likenesses(case)) if seconds else ():
            self.seconds[name].append(seconds)
        self.quantize[_artifact(case)] += [metrics["quantize_seconds"]] if "quantize_seconds" in metrics else []
        self.reference[case["model"]] += [metrics["reference_seconds"]] if "reference_seconds" in metrics else []
        for name in (record["key"], *_likenesses(case)[:1]):
            self.peak[name] = max(self.peak.get(name, 0), metrics.get("peak_rss_bytes", 0))

    def measuring(self, case: Case) -> Known | None:
        """Of the case itself, else of the same model and recipe, else of the same model, all measured in this way."""
        for name, basis in ((case_key(case), "measured"), *((name, "alike") for name in _likenesses(case))):
            if self.seconds.get(name):
                return Known(statistics.median(self.seconds[name]), basis)
        return None

    def quantizing(self, case: Case) -> float | None:
        found = self.quantize.get(_artifact(case))
        return statistics.median(found) if found else None

    def referencing(self, case: Case) -> float | None:
        found = self.reference.get(case["model"])
        return statistics.median(found) if found else None

    def peak_rss_bytes(self, case: Case) -> int | None:
        """The most that the case, or one of its model and recipe, held."""
        return next(filter(None, (self.peak.get(name) for name in (case_key(case), *_likenesses(case)[:1]))), None)


def _artifact(case: Case) -> str:
    return f"{case['model']} {case['recipe']}"


def _likenesses(case: Case) -> tuple[str, str]:
    """Names of what rows share that take about as long, the nearer first: all but threads and instruction set."""
    bench = case["bench"]
    work = json.dumps([case["eval"], bench, case["batch"], case.get("products")], sort_keys=True)
    return f"{case['model']} {case['recipe']} {case['cache']} {work}", f"{case['model']} {work}"
