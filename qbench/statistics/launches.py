"""Speeds of several launches: fresh processes, spread over time.

Two processes of the same code differ for as long as they live, and a machine differs from hour to hour. More rounds of
one process do not show either. So a launch counts as one sample: the median of its rounds.

source   Kalibera & Jones 2013, "Rigorous benchmarking in reasonable time", section 5 (levels of repetition)
"""

from collections.abc import Sequence

import numpy as np

from qbench.statistics.estimate import Estimate
from qbench.statistics.trimmed import trimmed_shift

LEAST = 2  # launches that have a spread

Launches = Sequence[Sequence[float]]  # per launch the seconds, or the speeds, of its rounds


def launch_ratio(seconds_a: Launches, seconds_b: Launches) -> Estimate:
    """Speed of B over that of A, each over its own launches. It takes LEAST launches on either side.

    seconds_a, seconds_b   of each round
    """
    return trimmed_shift(_logs(seconds_b), _logs(seconds_a)).exp()


def _logs(launches: Launches) -> np.ndarray:
    return np.log([float(np.median(rounds)) for rounds in launches])
