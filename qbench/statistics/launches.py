"""Speeds of several launches: fresh processes, spread over time.

Two processes of the same code differ for as long as they live, and a machine differs from hour to hour. More rounds of
one process do not show either. So a launch counts as one sample: the median of its rounds.

source   Kalibera & Jones 2013, "Rigorous benchmarking in reasonable time", section 5 (levels of repetition)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import student_estimate, variance
from qbench.statistics.trimmed import trimmed_shift

LEAST = 2  # launches that have a spread
OWN = 5  # launches that show a spread of their own, if it is larger than that of all rows

Launches = Sequence[Sequence[float]]  # per launch the seconds, or the speeds, of its rounds


@dataclass(frozen=True, slots=True)
class LaunchedSpeed:
    """Speed of one row, with the spread between launches in its error.

    log            mean logarithm of the launches' speeds
    error          standard error of `log`
    freedom        degrees of freedom of the spread behind `error`
    num_launches   of this row
    seconds        from the first launch of this row to the last: a machine that is faster an hour later shows in no
                   interval of launches that took a minute; None if unknown
    share          of the roofline: the median over the launches; None if it is unknown
    """

    log: float
    error: float
    freedom: int
    num_launches: int
    seconds: float | None = None
    share: float | None = None

    @property
    def estimate(self) -> Estimate:
        """Geometric mean of the launches, with its interval."""
        return student_estimate(self.log, self.error, self.freedom).exp()


def launched_speeds(rows: Sequence[Sequence[float]]) -> list[LaunchedSpeed] | None:
    """One speed per row; None if no row has several launches.

    rows     of the same work on one machine: the speed of each launch
    returns  all rows share one spread, the pooled one, so that two launches per row suffice: two launches alone have
             one degree of freedom, and an interval of 12.7 errors to either side. A row of OWN launches that differ
             more than the pooled spread says keeps its own.
    """
    logs = [np.log(np.asarray(row, dtype=np.float64)) for row in rows]
    freedom = sum(len(row) - 1 for row in logs)
    if not freedom:
        return None
    spread = math.sqrt(sum(variance(row) * (len(row) - 1) for row in logs if len(row) >= LEAST) / freedom)
    found = []
    for row in logs:
        own = math.sqrt(variance(row)) if len(row) >= OWN else 0.0
        spread_of_row, freedom_of_row = (own, len(row) - 1) if own > spread else (spread, freedom)
        error = spread_of_row / math.sqrt(len(row))
        found.append(LaunchedSpeed(float(row.mean()), error, freedom_of_row, len(row)))
    return found


def launched_ratio(a: LaunchedSpeed, b: LaunchedSpeed) -> Estimate:
    """Speed of B over that of A. Both errors may come from one pooled spread, so degrees of freedom do not add."""
    return student_estimate(b.log - a.log, math.hypot(a.error, b.error), min(a.freedom, b.freedom)).exp()


def launch_ratio(seconds_a: Launches, seconds_b: Launches) -> Estimate:
    """Speed of B over that of A, each over its own launches. It takes LEAST launches on either side.

    seconds_a, seconds_b   of each round
    """
    return trimmed_shift(_logs(seconds_b), _logs(seconds_a)).exp()


def _logs(launches: Launches) -> np.ndarray:
    return np.log([float(np.median(rounds)) for rounds in launches])
