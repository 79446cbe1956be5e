"""The scale searches against an exhaustive one in float64."""

import numpy as np
import pytest

from quant.formats.affine_fit import fit_scale_and_minimum
from quant.formats.linear_fit import fit_scale

RUNS = {
    "gauss": lambda rng, n: rng.standard_normal((6, n)),
    "student_t3": lambda rng, n: rng.standard_t(3, (6, n)),
    "positive": lambda rng, n: rng.uniform(1, 2, (6, n)),
    "two_values": lambda rng, n: rng.choice([-1.0, 0.3], (6, n)),
}


def affine_error(x: np.ndarray, scale: float, minimum: float, qmax: int) -> float:
    q = np.clip(np.rint((x + minimum) / scale), 0, qmax) if scale else np.zeros_like(x)
    return float(((scale * q - minimum - x) ** 2).sum())


def best_affine_error_ref(x: np.ndarray, qmax: int) -> float:
    """Grid of steps and offsets, each with the least-squares scale and minimum of its codes."""
    best = affine_error(x, 0.0, max(0.0, -float(x.mean())), qmax)
    lowest = min(x.min(), 0.0)
    for divisor in np.linspace(qmax - 4, qmax + 6, 41):
        scale = (x.max() - lowest) / divisor
        for shift in np.linspace(-1, 2, 13):
            q = np.clip(np.rint((x - lowest) / scale - shift), 0, qmax)
            (fitted, minimum), *_ = np.linalg.lstsq(np.stack([q, -np.ones_like(q)], axis=1), x, rcond=None)
            if fitted > 0 and minimum >= 0:
                best = min(best, affine_error(x, fitted, minimum, qmax))
    return best


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("qmax", [15, 31])
def test_affine_fit_is_near_the_exhaustive_one(kind, qmax):
    runs = RUNS[kind](np.random.default_rng(0), 32).astype(np.float32)
    scale, minimum = fit_scale_and_minimum(runs, qmax)
    got = sum(affine_error(x, s, m, qmax) for x, s, m in zip(runs.astype(np.float64), scale, minimum, strict=True))
    best = sum(best_affine_error_ref(x.astype(np.float64), qmax) for x in runs)
    energy = float((runs.astype(np.float64) ** 2).sum())
    assert got <= 1.15 * best + energy * 2.0**-40  # a tenth more squared error is 5 % more RMSE


def test_affine_fit_keeps_scale_and_minimum_unsigned():
    runs = np.random.default_rng(1).uniform(-3, -2, (50, 32)).astype(np.float32)
    for values in (runs, -runs, 0 * runs):
        scale, minimum = fit_scale_and_minimum(values, 15)
        assert (scale >= 0).all() and (minimum >= 0).all()


@pytest.mark.parametrize("kind", ["gauss", "student_t3", "positive"])
def test_linear_fit_is_near_the_exhaustive_one(kind):
    runs = RUNS[kind](np.random.default_rng(0), 16).astype(np.float32)

    def error(x, scale):
        return float(((scale * np.clip(np.rint(x / scale), -32, 31) - x) ** 2).sum())

    got = sum(error(x, s) for x, s in zip(runs.astype(np.float64), fit_scale(runs, 32), strict=True))
    best = 0.0
    for x in runs.astype(np.float64):
        extreme = x[np.abs(x).argmax()]
        best += min(error(x, extreme / divisor) for divisor in np.linspace(-36, -28, 801))
    assert got <= 1.25 * best + float((runs.astype(np.float64) ** 2).sum()) * 2.0**-40
