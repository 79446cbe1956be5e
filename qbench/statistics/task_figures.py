"""The figure of a task from its items, and its change when they change."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import block_mean

# Sums of items as lm-eval adds them, except for the order: n eps / 2 of them, which is less up to ten million items.
ROUNDING = 1e-9

# values, weights if they have any, and the figure that they make up
Side = tuple[Sequence[float], Sequence[float] | None, float | None]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of items of a value and a weight each, as lm-eval makes it up; `change` is that from A to B.

    lower_is_better   None: as the task says
    """

    of_mean: Callable[[float], float]  # of the weighted mean, sum of values over sum of weights
    change: Callable[[Estimate], Estimate]  # of the change of that mean
    kind: Literal["ratio", "difference"]
    lower_is_better: bool | None


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    """factor below 0 turns the interval round"""
    if estimate.error is None or estimate.low is None or estimate.high is None:
        return Estimate(factor * estimate.value)
    low, high = sorted((factor * estimate.low, factor * estimate.high))
    return Estimate(factor * estimate.value, abs(factor) * estimate.error, low, high, estimate.p_value)


MEAN = Figure(lambda mean: mean, lambda change: change, "difference", None)
# Values are log-likelihoods in nats, weights are the words or bytes that they are of.
PERPLEXITY = Figure(lambda mean: _exp(-mean), lambda change: _scaled(change, -1.0).exp(), "ratio", True)
BITS = Figure(lambda mean: -mean / math.log(2), lambda change: _scaled(change, -1 / math.log(2)), "difference", True)


def figure_of(sides: Sequence[Side]) -> Figure | None:
    """The figure that gives the value of each side; None if no figure does.

    sides   a record's entries of each, which show how the figure follows from its items
    """
    is_weighted = any(weights is not None for _, weights, _ in sides)
    known = (PERPLEXITY, BITS) if is_weighted else (MEAN, PERPLEXITY)
    return next((figure for figure in known if all(_fits(figure, *side) for side in sides)), None)


def change_of(figure: Figure, a: Sequence[float], b: Sequence[float], weights: Sequence[float] | None) -> Estimate:
    """From A to B, an item a block. a, b, weights [items]"""
    change = block_mean(np.subtract(b, a), np.ones(len(a)) if weights is None else weights)
    return figure.change(change)


def _fits(figure: Figure, values: Sequence[float], weights: Sequence[float] | None, value: float | None) -> bool:
    total = len(values) if weights is None else sum(weights)
    if value is None or not total > 0:
        return False
    return math.isclose(figure.of_mean(sum(values) / total), value, rel_tol=ROUNDING)


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700 else math.inf  # float64 ends at e**709
