"""Loss of information in samples that resemble their neighbours: a slow spell lasts longer than one sample."""

from collections.abc import Sequence

import numpy as np

MOST = 0.95  # beyond, a run of samples is one spell
# With fewer rounds the correlation is found too seldom. Simulated with neighbours correlated by half, intervals of 5 to
# 14 rounds hold the truth in SELDOM of cases, of ENOUGH rounds in 93 % (tests/qbench/statistics/test_coverage.py).
ENOUGH = 15
SELDOM = (0.86, 0.92)


def widening(samples: Sequence[float] | np.ndarray) -> float:
    """By how much an interval that takes the samples as independent must be widened, at least 1.

    sqrt((1 + r) / (1 - r)) for a correlation r of each sample with the next that fades as r, r**2, r**3, ... with those
    after it: the sum of all of them, to both sides. r of the ranks, so that an outlier is one rank, and raised by the
    bias of so few samples.
    source   Marriott and Pope 1954, Biometrika 41: (1 + 3 r) / n
    """
    ordered, count = np.sort(samples), len(samples)
    if count < 3 or ordered[0] == ordered[-1]:
        return 1.0
    below, up_to = (np.searchsorted(ordered, samples, side) for side in ("left", "right"))
    ranks = (below + up_to - count) / 2  # equal samples share a rank; the mean is 0
    found = float((ranks[1:] * ranks[:-1]).sum() / (ranks**2).sum())
    r = min(max(found + (1 + 3 * found) / count, 0.0), MOST)
    return float(np.sqrt((1 + r) / (1 - r)))


def told_of_few(rounds: int) -> str | None:
    """Note next to an interval of so few rounds; None from ENOUGH on."""
    if rounds >= ENOUGH:
        return None
    low, high = (f"{100 * share:.0f}" for share in SELDOM)
    return (
        f"slow spells that only one model has hardly show in {rounds} rounds; with neighbours correlated by half, "
        f"95 % intervals of so few hold the truth in {low} to {high} % of cases, from {ENOUGH} rounds on in 93 %"
    )
