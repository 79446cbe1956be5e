"""Simulated intervals that promise 95 % hold the truth in 93 to 97 % of cases."""

from functools import partial

import numpy as np
import pytest
from scipy import stats
from support.coverage import (
    BLOCKS,
    SEED,
    SIMULATIONS,
    bounds,
    normal,
    of_blocks,
    of_own_spells,
    of_rounds,
    quiet,
    share_held,
)

from qbench.statistics.autocorrelation import ENOUGH, SELDOM, told_of_few
from qbench.statistics.estimate import Estimate

RUNS = 2000


LONG = pytest.mark.exhaustive("half a second for each; 20 blocks of the other kinds are in every run")
LONG_NAMES = ("divergence of q4_0 over q6_k", "loss of q8_0", "loss of q4_0", "normal")


@pytest.mark.parametrize(
    "simulate",
    [
        pytest.param(run, id=name, marks=LONG if name.startswith(LONG_NAMES) or "60 blocks" in name else ())
        for name, run in SIMULATIONS.items()
    ],
)
def test_intervals_hold_as_often_as_promised(simulate, monkeypatch):
    monkeypatch.setattr("qbench.statistics.intervals.RESAMPLES", 999)  # ends a little less sharp, as often right
    least, most = bounds(RUNS)
    assert least <= share_held(simulate, RUNS) <= most


@pytest.mark.parametrize("rounds", [5, 7, ENOUGH - 1])
def test_few_rounds_with_spells_hold_their_documented_coverage(rounds):
    low, high = SELDOM
    slack = 3 * np.sqrt(low * (1 - low) / RUNS)
    assert low - slack <= share_held(partial(of_own_spells, 0.5, rounds), RUNS) <= high + slack
    assert f"in {100 * low:.0f} to {100 * high:.0f} % of cases" in told_of_few(rounds) and told_of_few(ENOUGH) is None


@pytest.mark.parametrize("rounds", [5, 8])
def test_few_rounds_have_no_absurd_intervals(rounds):
    """Two speeds scatter by 1 %, so their ratio by 1.4: nine in ten intervals reach no further than three times
    Student's law for as many independent ratios.
    """
    rng = np.random.default_rng(SEED)
    found = [of_rounds(quiet, rounds, rng)[0] for _ in range(RUNS)]
    halves = [(one.high - one.low) / (2 * one.value) for one in found]
    independent = stats.t.ppf(0.975, rounds - 1) * 0.01 * np.sqrt(2 / rounds)
    assert np.quantile(halves, 0.9) < 3 * independent


def test_a_percentile_interval_would_fail():
    def simulate(rng):
        rates, _, truth = BLOCKS["divergence of q4_0"](rng, 20)
        return Estimate(0.0, 0.0, *np.quantile(rng.choice(rates, (1000, 20)).mean(axis=1), [0.025, 0.975])), truth

    assert share_held(simulate, RUNS) < bounds(RUNS)[0]


def test_rounds_taken_as_independent_would_fail(monkeypatch):
    monkeypatch.setattr("qbench.statistics.speed.widening", lambda samples: 1.0)
    assert share_held(partial(of_own_spells, 0.5, 25), RUNS) < bounds(RUNS)[0] - 0.1


@pytest.mark.parametrize("factor", [0.75, 1.5])
def test_intervals_of_another_width_would_fail(factor, monkeypatch):
    monkeypatch.setattr("qbench.statistics.intervals.RESAMPLES", 999)

    def simulate(rng):
        found, truth = partial(of_blocks, normal, 20)(rng)
        ends = (found.value + factor * (end - found.value) for end in (found.low, found.high))
        return Estimate(found.value, found.error, *ends), truth

    least, most = bounds(RUNS)
    share = share_held(simulate, RUNS)
    assert share < least if factor < 1 else share > most
