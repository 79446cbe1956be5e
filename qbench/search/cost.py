"""The time of a search, by phase."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from qbench.measure.records.kept_searches import SearchCost

# Those of candidates have the candidates' names.
PHASES = SURVEY, SOLVE, PREDICTION, CHECK, SPEED, WRITE = (
    "survey",
    "program",
    "prediction",
    "check",
    "speed",
    "write",
)


@dataclass
class Phases:
    """Adds up the processor time of each phase."""

    started: float = field(default_factory=time.perf_counter)
    cpu_seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.process_time()
        try:
            yield
        finally:
            self.cpu_seconds[name] = self.cpu_seconds.get(name, 0.0) + time.process_time() - start

    def cost(self, gptq_phase: str) -> SearchCost:
        """gptq_phase: that one GPTQ run of the model took"""
        return SearchCost(time.perf_counter() - self.started, dict(self.cpu_seconds), self.cpu_seconds[gptq_phase])
