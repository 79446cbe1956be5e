"""Which points no other point beats."""

import numpy as np


def pareto_front(costs: np.ndarray) -> np.ndarray:
    """True for each point that no other equals or betters in every cost and betters in one.

    costs    [N, C] float, smaller is better; NaN (not measured) is on no front and beats nobody
    returns  [N] bool

    In the order of the first cost, ties by the next, nobody is beaten by one who comes later. So the first that is left
    is on the front, and those that it beats leave: as many passes as the front has points.
    """
    costs = np.asarray(costs, dtype=np.float64)
    front = np.zeros(len(costs), dtype=bool)
    left = np.flatnonzero(~np.isnan(costs).any(axis=1))
    left = left[np.lexsort(costs[left].T[::-1])]
    while len(left):
        first, left = left[0], left[1:]
        front[first] = True
        point, others = costs[first], costs[left]  # [C], [L, C]
        left = left[(others < point).any(axis=1) | (others == point).all(axis=1)]
    return front
