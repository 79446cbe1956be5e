"""Correction of p values for many comparisons at once."""

from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusted p values: called different where below 0.05, all of a table together err in at most 5 % of tables.

    p_values   None: not tested, so that it counts for nothing and stays None
    source     Holm 1979
    """
    p = np.asarray([p_value for p_value in p_values if p_value is not None], dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1)
    tested = iter(adjusted.tolist())
    return [None if p_value is None else next(tested) for p_value in p_values]
