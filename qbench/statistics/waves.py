"""The error of a mean whose samples drift: a slow wander that neighbours hardly show makes the mean as uncertain.

The slowest cosine waves of the samples have the variance of the mean, whatever the samples' correlation: a drift that
is slow against the whole run shows in them. The correlation of neighbours, which fast noise hides, does not enter.

source   Mueller 2007, Journal of Econometrics 141 (variance from cosine weights); Lazarus et al. 2018 (Student's law)
"""

from functools import lru_cache

import numpy as np

# Fewer ask for a wide Student's law (2: 4.3 errors), more reach waves that a drift no longer moves. Simulated false
# alarms at 60 rounds of white noise and a drift AR(1) 0.8 of the same size: 3 %, 4 % and 7 % of 2, 3 and 4 waves.
WAVES = 3
LEAST_ROUNDS = 8  # of which three waves are still slow
# The drift that verdicts allow for: AR(1) of this correlation, as large as the noise of one sample. In few rounds most
# of it is slower than the waves, whose error is then low by `shortfall`. Three waves whose error is low by ALLOWED hold
# the truth in 92 % of cases instead of 95; from 40 rounds on it is no lower. From CLEAR_ROUNDS on the correlation of
# neighbours shows the drift in enough cases.
PERSISTENCE, ALLOWED, CLEAR_ROUNDS = 0.8, 1.215, 60
FENCES = 3.0  # quartile ranges beyond the quartiles; a burst counts as no more than this


def wave_error(values: np.ndarray) -> float:
    """Standard error of the mean of values [n] in order of time, with WAVES degrees of freedom."""
    low, high = np.quantile(values, [0.25, 0.75])
    reach = FENCES * (high - low)
    drawn_in = np.clip(values, low - reach, high + reach)
    count = len(values)
    return float(np.sqrt(np.mean((_waves(count) @ drawn_in) ** 2) / count))


@lru_cache
def shortfall(count: int) -> float:
    """True error of the mean of so many samples with that drift, over the root mean square of `wave_error`."""
    rounds = np.arange(count)
    covariance = PERSISTENCE ** np.abs(rounds[:, None] - rounds) + np.eye(count)
    waves = _waves(count)
    found = np.mean(np.einsum("wi,ij,wj->w", waves, covariance, waves))
    return float(np.sqrt(covariance.sum() / count / found))


def _waves(count: int) -> np.ndarray:
    """[WAVES, count], each of length 1"""
    times = np.pi * (np.arange(count) + 0.5) / count
    return np.array([np.cos(k * times) for k in range(1, WAVES + 1)]) * np.sqrt(2 / count)
