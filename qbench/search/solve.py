"""One format per site at the least predicted loss within the bytes, as a mixed-integer program for scipy's HiGHS.

Variables: x_sf, 1 if site s gets option f.

    minimize    sum loss_sf x_sf
    such that   sum_f x_sf = 1 for each s, sum bytes_sf x_sf <= budget, and sum seconds_sf x_sf <= time
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

TIME_LIMIT_S = 20.0
INFEASIBLE = 2  # status of scipy.optimize.milp
GAP = 1e-4  # relative: a ten-thousandth of the loss is far below the error of the prediction


@dataclass(frozen=True, slots=True)
class Option:
    """A format for one site, and the method that rounds to it.

    loss     predicted KLD, nats
    seconds  of a decode step, over those with a middle format; may be negative
    parts    the options of the sites that share this format, if there are several
    """

    format: str
    method: str
    size_bytes: int
    loss: float
    seconds: float = 0.0
    parts: tuple["Option", ...] = ()


def shared(sites: Sequence[Sequence[Option]]) -> list[Option]:
    """The options of sites that share a format; each site takes the method that loses least."""
    best: list[dict[str, Option]] = []
    for options in sites:
        by_loss = sorted(options, key=lambda option: option.loss, reverse=True)
        best.append({option.format: option for option in by_loss})
    found = []
    for fmt in best[0]:
        parts = tuple(options[fmt] for options in best)
        size_bytes, loss = sum(each.size_bytes for each in parts), sum(each.loss for each in parts)
        found.append(Option(fmt, parts[0].method, size_bytes, loss, sum(each.seconds for each in parts), parts))
    return found


def solve(sites: Sequence[Sequence[Option]], budget_bytes: int, budget_seconds: float = math.inf) -> list[Option]:
    """The options of the least loss, one per site.

    raises   ValueError if no mix is within the limits
    """
    if sum(min(option.size_bytes for option in options) for options in sites) > budget_bytes:
        raise ValueError(f"no mix takes {budget_bytes} bytes or less")
    flat = [option for options in sites for option in options]
    sizes = np.array([option.size_bytes for option in flat], dtype=float)
    losses = np.array([option.loss for option in flat])
    row = np.repeat(np.arange(len(sites)), [len(options) for options in sites])
    one_each = csr_array((np.ones(len(flat)), (row, np.arange(len(flat)))), shape=(len(sites), len(flat)))
    constraints = [LinearConstraint(one_each, 1, 1), _at_most(sizes / budget_bytes, 1.0)]  # pyright: ignore[reportArgumentType]
    if budget_seconds != math.inf:
        seconds = np.array([option.seconds for option in flat])
        unit = np.abs(seconds).max() or 1.0
        constraints.append(_at_most(seconds / unit, budget_seconds / unit))
    found = milp(
        losses / (losses.max() or 1.0),  # HiGHS drops coefficients below 1e-9
        constraints=constraints,
        bounds=Bounds(0, 1),
        integrality=np.ones(len(flat)),
        options={"time_limit": TIME_LIMIT_S, "mip_rel_gap": GAP},
    )
    if found.status == INFEASIBLE:
        raise ValueError(f"no mix takes {budget_bytes} bytes and {budget_seconds:g} s or less")
    if found.x is None:
        raise RuntimeError(f"the solver found no mix within {TIME_LIMIT_S:g} s: {found.message}")
    chosen = [flat[place] for place in np.flatnonzero(found.x > 0.5)]
    return _within(sites, chosen, budget_bytes)


def fastest(sites: Sequence[Sequence[Option]], budget_bytes: int) -> float:
    """Least sum of seconds of a mix within the bytes. raises ValueError as `solve`"""
    least = min(option.seconds for options in sites for option in options)
    by_time = [[replace(option, loss=option.seconds - least) for option in options] for options in sites]
    return sum(option.seconds for option in solve(by_time, budget_bytes))


def largest(sites: Sequence[Sequence[Option]], budget_bytes: int, budget_seconds: float) -> int:
    """Most bytes of a mix within the limits. raises ValueError as `solve`"""
    most = max(option.size_bytes for options in sites for option in options)
    by_size = [[replace(option, loss=float(most - option.size_bytes)) for option in options] for options in sites]
    return sum(option.size_bytes for option in solve(by_size, budget_bytes, budget_seconds))


def _at_most(row: np.ndarray, limit: float) -> LinearConstraint:
    return LinearConstraint(row[None], -np.inf, limit)  # pyright: ignore[reportArgumentType]


def _within(sites: Sequence[Sequence[Option]], chosen: list[Option], budget_bytes: int) -> list[Option]:
    """The choice, with sites made smaller while it exceeds the budget by the solver's tolerance.

    Sites that do not become slower go first.
    """
    while sum(option.size_bytes for option in chosen) > budget_bytes:
        swaps = [
            (
                option.seconds > now.seconds,
                (option.loss - now.loss) / (now.size_bytes - option.size_bytes),
                place,
                number,
            )
            for place, (options, now) in enumerate(zip(sites, chosen, strict=True))
            for number, option in enumerate(options)
            if option.size_bytes < now.size_bytes
        ]
        *_, place, number = min(swaps)
        chosen[place] = sites[place][number]
    return chosen
