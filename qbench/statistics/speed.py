"""How many times as fast: the ratio of two speeds from raw samples."""

from collections.abc import Sequence

import numpy as np

from qbench.statistics.autocorrelation import widening
from qbench.statistics.estimate import Estimate
from qbench.statistics.trimmed import trimmed_mean, trimmed_shift
from quant.errors import InputError


def speed_ratio(samples_a: Sequence[float], samples_b: Sequence[float], interleaved: bool = True) -> Estimate:
    """Speed of B over that of A.

    samples       tok/s, in the order in which they were taken
    interleaved   sample i of either side was taken in the same round, and which side went first took turns: then what
                  slows the machine down slows both, and the ratio of a round is free of it. Else each side's samples
                  tell of its own run alone, and what changed on the machine between the runs is *not* in the interval
    A slow spell that lasts some rounds makes neighbours alike, of which fewer count: the interval is wider by that. Of
    fewer rounds than `autocorrelation.ENOUGH` it is often not found: `told_of_few` says so beside the interval.
    raises        InputError for samples that are not above 0, for none, or for unlike numbers of interleaved ones
    """
    a, b = (_logs(samples) for samples in (samples_a, samples_b))
    if interleaved and len(a) != len(b):
        raise InputError(f"{len(a)} and {len(b)} samples are not interleaved; every round has one of each")
    if interleaved:
        return trimmed_mean(b - a, widening(b - a)).exp()
    return trimmed_shift(a, b, (widening(a), widening(b))).exp()


def _logs(samples: Sequence[float]) -> np.ndarray:
    values = np.asarray(samples, dtype=np.float64)
    if not len(values) or not (np.isfinite(values) & (values > 0)).all():
        raise InputError(f"{len(values)} samples of speed, expected at least one and all above 0")
    return np.log(values)
