"""How often an interval that promises 95 % holds the truth, in simulations of qbench's measurements."""

from functools import partial
from itertools import accumulate

import numpy as np
from support.window_values import window_values

from qbench.statistics.autocorrelation import ENOUGH
from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import block_mean
from qbench.statistics.speed import speed_ratio
from qbench.statistics.verdict import accuracy_difference

SEED = 20240217
VALUES = window_values()
SPEEDUP = 1.05


def share_held(simulate, runs: int, rng: np.random.Generator | None = None) -> float:
    """simulate   random generator -> (an estimate, the truth)"""
    rng = rng or np.random.default_rng(SEED)
    held = 0
    for _ in range(runs):
        found, truth = simulate(rng)
        held += found.low <= truth <= found.high
    return held / runs


def bounds(runs: int) -> tuple[float, float]:
    """Bounds of 93 to 97 %, with three errors of a share of so many runs: of 2000, 91.5 to 98.5 %."""
    slack = 3 * np.sqrt(0.05 * 0.95 / runs)
    return 0.93 - slack, 0.97 + slack


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
    return rng.normal(0, 1, n) + rng.normal(0, 1, n) / np.sqrt(tokens), tokens, 0.0


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


def of_blocks(draw, num_blocks, rng) -> tuple[Estimate, float]:
    rates, tokens, truth = draw(rng, num_blocks)
    return block_mean(rates * tokens, tokens), truth


def of_items(lost, gained, num_items, rng) -> tuple[Estimate, float]:
    draw = rng.random(num_items)
    a = (draw < lost) | (draw > 0.5)
    b = (draw > 0.5) | ((draw > lost) & (draw < lost + gained))
    return accuracy_difference(a.tolist(), b.tolist())["difference"], gained - lost


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


def of_rounds(noise, rounds, rng) -> tuple[Estimate, float]:
    pairs = noise(rng, 2 * rounds).reshape(rounds, 2)
    pairs[1::2] = pairs[1::2, ::-1]  # who is first takes turns
    return speed_ratio(np.exp(pairs[:, 0]), SPEEDUP * np.exp(pairs[:, 1])), SPEEDUP


def of_runs_apart(noise, samples, rng) -> tuple[Estimate, float]:
    """On a machine that does not change between the runs."""
    a, b = noise(rng, samples), noise(rng, samples)
    return speed_ratio(np.exp(a), SPEEDUP * np.exp(b), interleaved=False), SPEEDUP


def of_own_spells(correlation, rounds, rng) -> tuple[Estimate, float]:
    """Each side has slow spells of its own, so that the ratio of a round resembles that of the next."""
    first, steps = rng.standard_normal(2), rng.standard_normal((rounds - 1, 2)) * np.sqrt(1 - correlation**2)
    # In Python's floats: arrays of two are an order of magnitude slower.
    a, b = (
        list(accumulate(step, lambda x, e: correlation * x + e, initial=x))
        for x, step in zip(first.tolist(), steps.T.tolist(), strict=True)
    )
    a, b = np.exp(0.02 * np.array([a, b]))
    return speed_ratio(a, SPEEDUP * b), SPEEDUP


NOISES = {"quiet": quiet, "drifting": drifting, "warming": warming, "bursting": bursting, "all at once": all_at_once}
SIMULATIONS = {
    **{f"{name}, {n} blocks": partial(of_blocks, draw, n) for name, draw in BLOCKS.items() for n in (20, 60)},
    **{
        f"{lost} lost and {gained} gained of {n} items": partial(of_items, lost, gained, n)
        for lost, gained in ((0.05, 0.05), (0.2, 0.1), (0.1, 0.02))
        for n in (100, 400)
    },
    **{f"{name}, {n} rounds": partial(of_rounds, noise, n) for name, noise in NOISES.items() for n in (5, 8, 25)},
    **{
        f"own spells, correlated by {correlation}, {n} rounds": partial(of_own_spells, correlation, n)
        for correlation, n in ((0.3, 8), (0.3, 25), (0.5, ENOUGH), (0.5, 25))
    },
    **{
        f"{name}, {n} samples apart": partial(of_runs_apart, NOISES[name], n)
        for name in ("quiet", "bursting")
        for n in (5, 8, 20)
    },
}
