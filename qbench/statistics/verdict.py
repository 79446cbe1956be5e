"""Better, same or worse."""

from typing import Literal

from qbench.statistics.estimate import ALPHA, Estimate

Verdict = Literal["better", "same", "worse"]


def verdict(
    estimate: Estimate,
    *,
    neutral: float,
    lower_is_better: bool,
    p_value: float | None = None,
    floor: float = 0.0,
) -> Verdict | None:
    """Verdict on the change from A to B; None without a p value.

    neutral   1 for a ratio, 0 for a difference
    p_value   corrected for the other comparisons of a table; None: the estimate's own
    floor     distance of the same model from itself: no smaller difference counts, however sure it is
    """
    p_value = estimate.p_value if p_value is None else p_value
    if p_value is None:
        return None
    change = estimate.value - neutral
    if p_value >= ALPHA or abs(change) <= floor:
        return "same"
    return "better" if (change < 0) == lower_is_better else "worse"
