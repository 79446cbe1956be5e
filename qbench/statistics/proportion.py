"""The share of right answers among independent items."""

from math import sqrt
from statistics import NormalDist

from qbench.statistics.estimate import ALPHA

Z = NormalDist().inv_cdf(1 - ALPHA / 2)


def share_interval(num_right: int, num_items: int) -> tuple[float, float]:
    """95 % interval of the share of which so many of `num_items` are right; never empty.

    Shares from which num_right is at most Z of their own standard errors away: |p - share| <= Z sqrt(p (1 - p) / n).
    raises   ValueError for no items
    source   Wilson 1927; Brown, Cai & DasGupta 2001, Statistical Science 16: their choice up to 40 items
    """
    if not 0 <= num_right <= num_items or num_items == 0:
        raise ValueError(f"got {num_right} right of {num_items} items, expected at least one item and no more right")
    share, of_one = num_right / num_items, Z * Z / num_items
    centre = (share + of_one / 2) / (1 + of_one)
    half = sqrt(share * (1 - share) * of_one + of_one**2 / 4) / (1 + of_one)
    # If all or no items are right, one end is 1 or 0 itself, except for rounding.
    return (0.0 if num_right == 0 else centre - half), (1.0 if num_right == num_items else centre + half)
