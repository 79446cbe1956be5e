"""Of intervals that promise 95 %, simulated ones hold the truth in 93 to 97 %.

A share of some hundred runs is known to a few percent, which the bounds allow for:
QBENCH_COVERAGE_RUNS=4000 leaves 1 %.
"""

import os

import numpy as np
import pytest
from support.window_values import window_values

from qbench.statistics import accuracy_difference, block_mean, speed_ratio

RUNS = int(os.environ.get("QBENCH_COVERAGE_RUNS", 300))
SLACK = 3 * np.sqrt(0.05 * 0.95 / RUNS)  # three errors of a share of RUNS
VALUES = window_values()
PROMISED = 0.93 - SLACK, 0.97 + SLACK


def real(series: str):
    """Windows of the reference model, drawn with replacement; their mean is then the truth."""
    values = VALUES[series]
    return lambda rng, n: (rng.choice(values, n), np.full(n, 1023), values.mean())


def more(name: str, other: str):
    values = VALUES[name] - VALUES[other]
    return lambda rng, n: (rng.choice(values, n), np.full(n, 1023), values.mean())


def normal(rng, n):
    return rng.normal(1.0, 1.0, n), np.full(n, 512), 1.0


def long_tailed(rng, n):
    """Documents of unlike lengths, some of them far out."""
    return rng.lognormal(0, 0.6, n), rng.integers(50, 2000, n), np.exp(0.18)


def correlated(rng, n):
    """Documents whose tokens hang together: an interval from tokens would be four times too narrow."""
    tokens = rng.integers(40, 400, n)
    shared = rng.normal(0, 1, n)
    return np.array([np.mean(s + rng.normal(0, 1, t)) for s, t in zip(shared, tokens, strict=True)]), tokens, 0.0


BLOCKS = {
    "loss": real("loss"),
    "loss of q8_0": real("loss of q8_0"),
    "loss of q4_0": real("loss of q4_0"),
    "divergence of q6_k": real("divergence of q6_k"),
    "divergence of q4_0": real("divergence of q4_0"),
    "divergence of q4_0 over q6_k": more("divergence of q4_0", "divergence of q6_k"),
    "normal": normal,
    "documents, long-tailed": long_tailed,
    "documents, correlated": correlated,
}


@pytest.mark.parametrize("num_blocks", [20, 60])
@pytest.mark.parametrize("draw", BLOCKS.values(), ids=BLOCKS)
def test_intervals_of_blocks(draw, num_blocks, monkeypatch):
    monkeypatch.setattr("qbench.statistics.studentized.RESAMPLES", 999)  # ends a little less sharp, as often right
    rng = np.random.default_rng(20240217)
    held = 0
    for _ in range(RUNS):
        rates, tokens, truth = draw(rng, num_blocks)
        found = block_mean(rates * tokens, tokens)
        held += found.low <= truth <= found.high
    assert PROMISED[0] <= held / RUNS <= PROMISED[1], held / RUNS


def test_a_percentile_interval_would_fail_this_test():
    rng = np.random.default_rng(20240217)
    draw = BLOCKS["divergence of q4_0"]
    held = 0
    for _ in range(RUNS):
        rates, _, truth = draw(rng, 20)
        low, high = np.quantile(rng.choice(rates, (1000, 20)).mean(axis=1), [0.025, 0.975])
        held += low <= truth <= high
    assert held / RUNS < PROMISED[0]


@pytest.mark.parametrize("num_items", [100, 400])
@pytest.mark.parametrize("lost, gained", [(0.05, 0.05), (0.2, 0.1), (0.1, 0.02)])
def test_intervals_of_accuracy(lost, gained, num_items):
    rng = np.random.default_rng(20240217)
    held = 0
    for _ in range(RUNS):
        draw = rng.random(num_items)
        a = (draw < lost) | (draw > 0.5)
        b = (draw > 0.5) | ((draw > lost) & (draw < lost + gained))
        found = accuracy_difference(a, b)["difference"]
        held += found.low <= gained - lost <= found.high
    assert PROMISED[0] <= held / RUNS <= PROMISED[1], held / RUNS


def quiet(rng, n):
    return rng.normal(0, 0.01, n)


def drifting(rng, n):
    """A clock that wanders, twenty measurements back still felt."""
    return quiet(rng, n) + np.cumsum(rng.normal(0, 0.01, n))


def warming(rng, n):
    return quiet(rng, n) + np.linspace(0, -0.1, n)


def bursting(rng, n):
    """Others take the machine a sixth of the time, three measurements at a stretch, and then up to a third of it."""
    busy, slow = np.zeros(n, dtype=bool), False
    for i in range(n):
        slow = rng.random() > 1 / 3 if slow else rng.random() < 0.06
        busy[i] = slow
    return quiet(rng, n) - busy * rng.uniform(0.1, 0.4, n)


def all_at_once(rng, n):
    return drifting(rng, n) + bursting(rng, n)


@pytest.mark.parametrize("rounds", [6, 10, 25])
@pytest.mark.parametrize("noise", [quiet, drifting, warming, bursting, all_at_once])
def test_intervals_of_interleaved_speeds(noise, rounds):
    rng = np.random.default_rng(20240217)
    held = 0
    for _ in range(RUNS):
        pairs = noise(rng, 2 * rounds).reshape(rounds, 2)
        pairs[1::2] = pairs[1::2, ::-1]  # who is first takes turns
        found = speed_ratio(np.exp(pairs[:, 0]), 1.05 * np.exp(pairs[:, 1]))
        held += found.low <= 1.05 <= found.high
    assert PROMISED[0] <= held / RUNS <= PROMISED[1], held / RUNS


@pytest.mark.parametrize("samples", [5, 8, 20])
@pytest.mark.parametrize("noise", [quiet, bursting])
def test_intervals_of_speeds_apart_on_a_machine_that_does_not_change(noise, samples):
    rng = np.random.default_rng(20240217)
    held = 0
    for _ in range(RUNS):
        a, b = noise(rng, samples), noise(rng, samples)
        found = speed_ratio(np.exp(a), 1.05 * np.exp(b), interleaved=False)
        held += found.low <= 1.05 <= found.high
    assert PROMISED[0] <= held / RUNS <= PROMISED[1], held / RUNS
