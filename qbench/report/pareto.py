"""Which points no other point beats."""

import numpy as np


def pareto_front(costs: np.ndarray) -> np.ndarray:
    """True for each point that no other equals or betters in every cost and betters in one.

    costs    [N, C] float, smaller is better; NaN (not measured) is on no front and beats nobody
    returns  [N] bool
    """
    costs = np.asarray(costs, dtype=np.float64)
    known = ~np.isnan(costs).any(axis=1)  # [N]
    no_worse = (costs[:, None, :] <= costs[None, :, :]).all(axis=2)  # [N, N]: row no worse than column anywhere
    better = (costs[:, None, :] < costs[None, :, :]).any(axis=2)  # [N, N]: row better than column somewhere
    beaten = (no_worse & better & known[:, None]).any(axis=0)  # [N]
    return known & ~beaten
