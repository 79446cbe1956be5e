"""How long a running sweep still takes: as its cases did before, and as those of this run do."""

import statistics
from collections.abc import Sequence

from qbench.measure.records.record import Record, case_key
from qbench.run.case import Case
from qbench.sweeps.forecast.past import Past


class TimeLeft:
    """cases   those that are to be measured; past: rows of earlier runs, to which those of this one come"""

    def __init__(self, cases: Sequence[Case], past: Past) -> None:
        self.cases = {case_key(case): case for case in cases}
        self.past = past
        self.done: list[float] = []  # seconds of the cases that ended in this run
        self.estimate()

    def end(self, record: Record, seconds: float) -> None:
        """After each case, whether it was measured or failed."""
        self.cases.pop(record.key, None)
        self.done.append(seconds)
        self.past.add(record)
        self.estimate()

    def estimate(self) -> None:
        """Seconds of all cases that are left, as the mean of this run if nothing like a case is known, or None."""
        known = [self.past.measuring(case) for case in self.cases.values()]
        sure = [one.seconds for one in known if one]
        mean = statistics.fmean(self.done or sure) if self.done or sure else None
        self.of_all = None if mean is None else sum(sure) + mean * (len(known) - len(sure))
        artifacts = {(case.model, case.recipe): case for case in self.cases.values()}
        if self.of_all is not None and not self.done:  # later it is in the rows' own time, or was spent
            self.of_all += sum(self.past.quantizing(case) or 0.0 for case in artifacts.values())

    def seconds(self, elapsed: float) -> float | None:
        """Seconds left when the running case has run for `elapsed` seconds."""
        return None if self.of_all is None else max(0.0, self.of_all - elapsed)
