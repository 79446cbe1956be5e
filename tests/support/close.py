"""The project's one way to compare floats in tests. It is itself tested in tests/support/test_close.py."""

import numpy as np


def assert_close(got, expected, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Every element within atol + rtol * |expected|, same shape, and NaN or inf only where expected has them.

    Tolerances are given by the caller as a formula of dtype and reduction length; above 1e-2 they must be
    computed, not typed. Both zero means exact.
    """
    got = _as_float64(got)
    expected = _as_float64(expected)
    assert got.shape == expected.shape, f"shape {got.shape}, expected {expected.shape}"
    special = ~np.isfinite(expected)
    same_special = (got == expected) | (np.isnan(got) & np.isnan(expected))
    assert np.array_equal(~np.isfinite(got), special) and same_special[special].all(), "NaN or inf out of place"
    error = np.where(special, 0.0, np.abs(np.where(special, 0.0, got) - np.where(special, 0.0, expected)))
    bound = atol + rtol * np.abs(np.where(special, 0.0, expected))
    if (error > bound).any():
        worst = np.unravel_index(np.argmax(error - bound), error.shape)
        raise AssertionError(
            f"{int((error > bound).sum())} of {error.size} elements off; worst at {tuple(map(int, worst))}: "
            f"got {got[worst]!r}, expected {expected[worst]!r}, error {error[worst]:.3g} > {bound[worst]:.3g}"
        )


def _as_float64(value) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().double().cpu().numpy()
    return np.asarray(value, dtype=np.float64)
