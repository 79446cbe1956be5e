"""Correction of p values for many comparisons at once."""

from collections.abc import Sequence
from itertools import accumulate


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusted p values: called different if below 0.05, all of a table together err in at most 5 % of tables.

    p_values   None: not tested, so that it counts for nothing and stays None
    source     Holm 1979
    """
    tested = {i: p_value for i, p_value in enumerate(p_values) if p_value is not None}
    order = sorted(tested, key=tested.__getitem__)
    stepped = accumulate((tested[i] * (len(order) - rank) for rank, i in enumerate(order)), max)
    adjusted = dict(zip(order, stepped, strict=True))
    return [None if p_value is None else min(adjusted[i], 1.0) for i, p_value in enumerate(p_values)]
