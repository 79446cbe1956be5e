"""How far the outermost magnitude of a tensor is from the others, as the chance that healthy weights do so."""

from collections.abc import Sequence

import numpy as np

# Magnitudes at either end that the outermost is compared with: more know the tail better, but reach into the middle.
NUM_LARGEST, NUM_SMALLEST = 32, 128
LEAST_SHARE = 4  # a tensor has at least so many times as many, or its middle is taken for a tail
# Chance of a false alarm at one end of one tensor: at most one model of 300 tensors in a hundred.
MOST_CHANCE = 2.0**-16
SMALLEST_FLIP = 2.0  # an exponent bit at least doubles or halves
BF16_STEP = 2.0**-8  # mean of logarithms' spacings, at least: equal magnitudes are of a grid
OCTAVE = float(np.log(2))  # the same of magnitudes that are all powers of two, as MXFP4's scales


def chance_of_largest(largest: Sequence[float]) -> float:
    """Chance of a largest magnitude so far above the next, if the tail goes on as between the others.

    Spacings of the logarithms, each times its rank, are independent and exponential with one mean in a tail of any
    weight; so the first over the mean of the n others is above t with chance (1 + t / n)^-n.

    largest  in descending order
    source   Rényi 1953 (spacings); Hill 1975 (their mean)
    """
    logs = np.log(largest)
    spacings = -np.diff(logs) * np.arange(1, len(logs))
    if spacings[0] < np.log(SMALLEST_FLIP):
        return 1.0
    others = len(spacings) - 1
    step = OCTAVE if (np.frexp(largest)[0] == 0.5).all() else BF16_STEP
    mean = max(float(spacings[1:].mean()), step)
    return float((1 + spacings[0] / mean / others) ** -others)


def chance_of_smallest(smallest: Sequence[float]) -> float:
    """Chance of a smallest magnitude so far below the last of these, if weights are spread around 0 as the others are.

    The density of weights is even there, so that magnitudes below the last are evenly spread, too. If the others are
    significantly closer to 0 than that, the share below a magnitude x is taken as x^a with their own a.

    smallest  in ascending order
    source    Hill 1975 (a)
    """
    logs = np.log(smallest[-1]) - np.log(smallest[:-1])  # even spread: exponential of mean 1
    others = len(logs) - 1
    mean = float(logs[1:].mean())
    power = 1.0 if mean <= 1 + 3 / others**0.5 else 1 / mean
    return float(-np.expm1((others + 1) * np.log1p(-np.exp(-power * logs[0]))))


def chance_of_smallest_scale(smallest: Sequence[float]) -> float:
    """As `chance_of_largest`, at the lower end: scales are not spread around 0, so that their own tail decides."""
    return chance_of_largest([1 / value for value in smallest])
