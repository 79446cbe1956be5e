"""The search for a scale and an offset against an exhaustive one in float64."""

import numpy as np
import pytest

from quant.formats.affine_fit import Trials, fit_affine, ordered_sum

TRIALS = Trials(first_extra=-3.0, extra_step=1.0, num_extra=8, num_shifts=3, num_refits=2)

RUNS = {
    "gauss": lambda rng: rng.standard_normal((6, 32)),
    "student_t3": lambda rng: rng.standard_t(3, (6, 32)),
    "positive": lambda rng: rng.uniform(1, 2, (6, 32)),
    "negative": lambda rng: rng.uniform(-3, -2, (6, 32)),
    "two_values": lambda rng: rng.choice([-1.0, 0.3], (6, 32)),
}


def error(x: np.ndarray, w: np.ndarray, scale: float, offset: float, qmax: int) -> float:
    q = np.clip(np.rint((x - offset) / scale), 0, qmax) if scale else np.zeros_like(x)
    return float((w * (scale * q + offset - x) ** 2).sum())


def least_error_ref(x: np.ndarray, w: np.ndarray, qmax: int, bounded: bool) -> float:
    """Grid of steps and offsets, each with the least-squares scale and offset of its codes."""
    mean = float((w * x).sum() / w.sum())
    least = error(x, w, 0.0, min(mean, 0.0) if bounded else mean, qmax)
    lowest = min(x.min(), 0.0) if bounded else x.min()
    root = np.sqrt(w)
    for divisor in np.linspace(qmax - 4, qmax + 6, 41):
        scale = (x.max() - lowest) / divisor
        for shift in np.linspace(-1, 2, 13):
            q = np.clip(np.rint((x - lowest) / scale - shift), 0, qmax)
            (fitted, offset), *_ = np.linalg.lstsq(np.stack([root * q, root], axis=1), root * x, rcond=None)
            if fitted > 0 and (offset <= 0 or not bounded):
                least = min(least, error(x, w, fitted, offset, qmax))
    return least


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("qmax", [15, 31])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "importance"])
@pytest.mark.parametrize("bounded", [False, True], ids=["free", "bounded"])
def test_error_is_near_the_exhaustive_one(kind, qmax, weighted, bounded):
    rng = np.random.default_rng(0)
    runs = RUNS[kind](rng).astype(np.float32)
    w = (rng.lognormal(0, 1, runs.shape) if weighted else np.ones(runs.shape)).astype(np.float32)
    fit = fit_affine(runs.T, w.T, qmax, TRIALS, bounded=bounded)
    got = best = energy = 0.0
    for run, weight, scale, offset in zip(runs, w, fit.scale, fit.lowest + fit.offset, strict=True):
        x = run.astype(np.float64)
        got += error(x, weight, float(scale), float(offset), qmax)
        best += least_error_ref(x, weight, qmax, bounded)
        energy += float((weight * x**2).sum())
    assert got <= 1.1 * best + energy * 2.0**-40


@pytest.mark.parametrize("kind", RUNS)
def test_bounded_fits_begin_at_zero_or_below(kind):
    runs = RUNS[kind](np.random.default_rng(1)).astype(np.float32)
    for values in (runs, -runs, 0 * runs):
        fit = fit_affine(values.T, np.ones_like(values.T), 15, TRIALS, bounded=True)
        assert (fit.scale >= 0).all() and (fit.lowest + fit.offset <= 0).all()


def test_sums_match_the_found_codes():
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((32, 9)).astype(np.float32), rng.uniform(0.1, 1, (32, 9)).astype(np.float32)
    fit = fit_affine(x, w, 15, TRIALS, bounded=True)
    # Normal equations of the codes: the result of the search solves them.
    left = fit.scale * fit.sum_qq + fit.offset * fit.sum_q
    np.testing.assert_allclose(left, fit.sum_qy, rtol=32 * 2.0**-22)


def test_ordered_sum_adds_one_after_the_other():
    # 1 is lost next to 2**24, so the order shows: pairs would come to 2**24 + 2.
    terms = np.array([2.0**24, 1, 1, 1], dtype=np.float32)[:, None]
    assert ordered_sum(terms) == np.float32(2.0**24)
