"""False alarms of interleaved comparisons when one side drifts, and the power that is left without a drift."""

from itertools import accumulate

import numpy as np
import pytest
from support.coverage import SEED

from qbench.statistics.speed import speed_ratio
from qbench.statistics.waves import ALLOWED, shortfall, wave_error

RUNS, NOISE, LOSS = 1000, 0.02, 0.05
MOST_FALSE, LEAST_POWER = 0.08, 0.9


def noise(rng: np.random.Generator, rounds: int, drift: float = 0.0) -> np.ndarray:
    """Logarithms of speeds: white noise of NOISE, and a drift AR(1) 0.8 of that many times NOISE."""
    steps = rng.standard_normal(rounds).tolist()
    wander = list(accumulate(steps, lambda x, e: 0.8 * x + 0.6 * e))
    return NOISE * (rng.standard_normal(rounds) + drift * np.array(wander))


def share_called_different(rounds: int, drift: float, loss: float = 0.0) -> float:
    """Share of comparisons with p < 0.05; B drifts alone."""
    rng, found = np.random.default_rng(SEED), 0
    for _ in range(RUNS):
        a, b = noise(rng, rounds), noise(rng, rounds, drift)
        found += speed_ratio(np.exp(a), (1 - loss) * np.exp(b)).p_value < 0.05
    return found / RUNS


def slack(share: float) -> float:
    return 3 * np.sqrt(share * (1 - share) / RUNS)


@pytest.mark.parametrize("rounds", [8, 15, 25, 40, 60])
def test_a_drift_of_one_side_raises_few_false_alarms(rounds):
    assert share_called_different(rounds, 1.4) <= MOST_FALSE + slack(MOST_FALSE)


def test_without_the_waves_it_would_raise_twice_the_alarms(monkeypatch):
    monkeypatch.setattr("qbench.statistics.speed.LEAST_ROUNDS", RUNS)
    assert share_called_different(60, 1.4) > MOST_FALSE + slack(MOST_FALSE)


@pytest.mark.parametrize("rounds", [15, 60])
def test_without_a_drift_a_true_loss_is_found_without_false_ones(rounds):
    assert share_called_different(rounds, 0.0, LOSS) >= LEAST_POWER
    assert share_called_different(rounds, 0.0) <= 0.05 + slack(0.05)


def test_the_allowance_matches_a_drift():
    """Simulated: the spread of the means over the error that the waves find."""
    rng, rounds = np.random.default_rng(SEED), 15
    samples = [noise(rng, rounds, 1.0) for _ in range(4 * RUNS)]
    found = np.std([each.mean() for each in samples]) / np.sqrt(np.mean([wave_error(each) ** 2 for each in samples]))
    assert found == pytest.approx(shortfall(rounds), rel=0.05)
    assert shortfall(40) < ALLOWED < shortfall(39)


@pytest.mark.parametrize("rounds", [8, 31])
def test_the_error_of_independent_samples_is_that_of_their_mean(rounds):
    rng = np.random.default_rng(SEED)
    squares = [wave_error(rng.standard_normal(rounds)) ** 2 for _ in range(RUNS)]
    # A square of three waves has a relative variance of 2 / 3; clipping at the fences changes nothing of normal values.
    assert abs(np.mean(squares) * rounds - 1) < 3 * np.sqrt(2 / 3 / RUNS) + 0.02


def test_a_burst_counts_as_an_outlier_does():
    calm = np.random.default_rng(SEED).standard_normal(40)
    burst = calm.copy()
    burst[3] = -1e6
    assert wave_error(burst) < 3 * wave_error(calm)


def test_a_constant_shift_has_no_wave():
    assert wave_error(np.full(20, 3.0)) == pytest.approx(0.0, abs=1e-12)
