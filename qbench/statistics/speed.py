"""How many times as fast: the ratio of two speeds from raw samples."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qbench.statistics.autocorrelation import widening
from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import student_estimate
from qbench.statistics.trimmed import trimmed_mean, trimmed_shift
from qbench.statistics.waves import ALLOWED, CLEAR_ROUNDS, LEAST_ROUNDS, WAVES, shortfall, wave_error
from quant.errors import InputError
from quant.present import present

CORRELATED = 1.05  # widening from which on a drift is looked for; below, its waves are noise


def speed_ratio(samples_a: Sequence[float], samples_b: Sequence[float], interleaved: bool = True) -> Estimate:
    """Speed of B over that of A.

    samples       tok/s, in the order in which they were taken
    interleaved   sample i of either side was taken in the same round, and which side went first took turns: then a slow
                  machine slows both, and the ratio of a round is free of it. Else each side's samples describe its own
                  run alone, and changes of the machine between the runs are *not* in the interval
    A slow spell that lasts some rounds correlates neighbours, of which fewer count: the interval is wider by that. If
    there is any such correlation, the interval is at least that of `wave_error`, which sees a slow drift of one side.
    In fewer rounds than `autocorrelation.ENOUGH` neither is found for sure: `told_of_few` says so next to the interval.
    In fewer than `waves.CLEAR_ROUNDS` noise hides a drift. The interval leaves it out, the p value allows for it: then
    a ratio can be undecided although 1 is outside the interval.
    raises        InputError for samples that are not above 0, for an empty list, or for unlike numbers of interleaved
                  ones
    """
    a, b = (_logs(samples) for samples in (samples_a, samples_b))
    if interleaved and len(a) != len(b):
        raise InputError(f"{len(a)} and {len(b)} samples are not interleaved; every round has one of each")
    if interleaved:
        return _of_rounds(b - a).exp()
    return trimmed_shift(a, b, (widening(a), widening(b))).exp()


def _of_rounds(differences: np.ndarray) -> Estimate:
    widened, rounds = widening(differences), len(differences)
    found = trimmed_mean(differences, widened)
    if rounds < LEAST_ROUNDS or found.low is None or (widened < CORRELATED and rounds >= CLEAR_ROUNDS):
        return found
    error = wave_error(differences)
    if widened >= CORRELATED:
        drifting = student_estimate(found.value, error, WAVES)
        found = drifting if drifting.low is not None and drifting.low < found.low else found
    if rounds < CLEAR_ROUNDS:
        allowing = student_estimate(found.value, error * max(1.0, shortfall(rounds) / ALLOWED), WAVES)
        found = replace(found, p_value=max(present(found.p_value), allowing.p_value or 0.0))
    return found


def _logs(samples: Sequence[float]) -> np.ndarray:
    values = np.asarray(samples, dtype=np.float64)
    if not len(values) or not (np.isfinite(values) & (values > 0)).all():
        raise InputError(f"{len(values)} samples of speed, expected at least one and all above 0")
    return np.log(values)
