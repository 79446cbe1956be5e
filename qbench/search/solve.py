"""One format per site at the least predicted loss within the bytes, as a mixed-integer program for scipy's HiGHS.

Variables: x_sf, 1 if site s gets option f.

    minimize    sum loss_sf x_sf
    such that   sum_f x_sf = 1 for each s, and sum bytes_sf x_sf <= budget
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

TIME_LIMIT_S = 20.0
GAP = 1e-4  # relative: a ten-thousandth of the loss is far below the error of the prediction


@dataclass(frozen=True, slots=True)
class Option:
    """A format for one site, and the method that rounds to it.

    loss   predicted KLD, nats
    """

    format: str
    method: str
    size_bytes: int
    loss: float


def solve(sites: Sequence[Sequence[Option]], budget_bytes: int) -> list[Option]:
    """The options of the least loss, one per site.

    raises   ValueError if even the smallest options exceed the budget
    """
    if sum(min(option.size_bytes for option in options) for options in sites) > budget_bytes:
        raise ValueError(f"no mix takes {budget_bytes} bytes or less")
    flat = [option for options in sites for option in options]
    sizes = np.array([option.size_bytes for option in flat], dtype=float)
    losses = np.array([option.loss for option in flat])
    row = np.repeat(np.arange(len(sites)), [len(options) for options in sites])
    one_each = csr_array((np.ones(len(flat)), (row, np.arange(len(flat)))), shape=(len(sites), len(flat)))
    found = milp(
        losses / losses.max(),  # HiGHS drops coefficients below 1e-9
        constraints=[
            LinearConstraint(one_each, 1, 1),  # pyright: ignore[reportArgumentType]
            LinearConstraint(sizes[None] / budget_bytes, -np.inf, 1),  # pyright: ignore[reportArgumentType]
        ],
        bounds=Bounds(0, 1),
        integrality=np.ones(len(flat)),
        options={"time_limit": TIME_LIMIT_S, "mip_rel_gap": GAP},
    )
    if found.x is None:
        raise RuntimeError(f"the solver found no mix within {TIME_LIMIT_S:g} s: {found.message}")
    chosen = [flat[place] for place in np.flatnonzero(found.x > 0.5)]
    return _within(sites, chosen, budget_bytes)


def _within(sites: Sequence[Sequence[Option]], chosen: list[Option], budget_bytes: int) -> list[Option]:
    """The choice, with sites made smaller while it exceeds the budget by the solver's tolerance."""
    while sum(option.size_bytes for option in chosen) > budget_bytes:
        swaps = [
            ((option.loss - now.loss) / (now.size_bytes - option.size_bytes), place, number)
            for place, (options, now) in enumerate(zip(sites, chosen, strict=True))
            for number, option in enumerate(options)
            if option.size_bytes < now.size_bytes
        ]
        _, place, number = min(swaps)
        chosen[place] = sites[place][number]
    return chosen
