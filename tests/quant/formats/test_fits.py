"""The scale searches against an exhaustive one in float64."""

import numpy as np
import pytest

from quant.formats.iq4 import CODEBOOK
from quant.formats.levels import WholeLevels
from quant.formats.linear_fit import Search, even_targets, fit_scale, runs_of, sum_in_order

RUNS = {
    "gauss": lambda rng, n: rng.standard_normal((6, n)),
    "student_t3": lambda rng, n: rng.standard_t(3, (6, n)),
    "positive": lambda rng, n: rng.uniform(1, 2, (6, n)),
    "two_values": lambda rng, n: rng.choice([-1.0, 0.3], (6, n)),
}


@pytest.mark.parametrize("kind", ["gauss", "student_t3", "positive"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "importance"])
def test_linear_fit_is_near_the_exhaustive_one(kind, weighted):
    rng = np.random.default_rng(0)
    runs = RUNS[kind](rng, 16).astype(np.float32)
    importance = rng.uniform(0.1, 1, runs.shape).astype(np.float32) if weighted else None
    scales = fit_scale(
        runs_of(runs, importance, 1, WholeLevels(-32, 31)), Search(even_targets(-32, 4, 33), num_refits=1)
    )
    weights = np.ones(runs.shape) if importance is None else importance.astype(np.float64)

    def error(x, weight, scale):
        return float((weight * (scale * np.clip(np.rint(x / scale), -32, 31) - x) ** 2).sum())

    got = best = 0.0
    for x, weight, scale in zip(runs.astype(np.float64), weights, scales, strict=True):
        extreme = x[np.abs(x).argmax()]
        got += error(x, weight, float(scale))
        best += min(error(x, weight, extreme / divisor) for divisor in np.linspace(-38, -26, 1201))
    assert got <= 1.1 * best + float((weights * runs.astype(np.float64) ** 2).sum()) * 2.0**-40


def test_linear_fit_of_runs_too_small_for_a_half_is_zero():
    runs = np.full((2, 16), 2.0**-120, dtype=np.float32)
    assert (fit_scale(runs_of(runs, None, 1, WholeLevels(-8, 7)), Search((-8.0,))) == 0).all()


def test_sum_in_order_is_sequential():
    # From the front 2**24 swallows each 1; in pairs the ones would add up first.
    terms = np.array([[2.0**24], *[[1.0]] * 32], dtype=np.float32)
    assert sum_in_order(terms) == np.float32(2.0**24)


def test_codebook_levels_are_the_nearest():
    values = np.array(CODEBOOK.values, dtype=np.float64)
    y = np.random.default_rng(2).uniform(-140, 125, 3000).astype(np.float32)
    distance = np.abs(CODEBOOK.nearest(y).astype(np.float64) - y)
    np.testing.assert_array_equal(distance, np.abs(values[:, None] - y).min(axis=0))
    np.testing.assert_array_equal(CODEBOOK.decode(CODEBOOK.codes(y)), CODEBOOK.nearest(y))
