"""The placement with the shortest step, as a mixed-integer program for scipy's HiGHS.

Variables: n_k, how many of kind k stay, an integer; s_k, whether one of kind k is streamed, 0 or 1; e, the share of the
experts in memory; r, the bytes of the ring; t, the seconds of a step.

    minimize    t
    such that   sum_k held_k n_k + E + r <= memory          E >= e * held experts, E >= their least
                r >= (held_k + ahead) s_k                   for kinds that pass through the ring
                n_k >= count_k (1 - s_k)
                t >= bytes / bandwidth + experts            bytes = sum_k read_k (count_k - n_k)
                t >= compute + processor seconds * bytes + experts        experts = their read (1 - e) / bandwidth

Equal units are one integer and not many binaries: placements that differ by names alone would all be tried.
"""

from collections.abc import Iterator

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from qbench.plan.offload.costs import Costs, Placed, memory_of
from quant.present import present

TIME_LIMIT_S = 20.0
GAP = 1e-6  # relative

Row = tuple[np.ndarray, float, float]  # coefficients, least and largest value


def solve(costs: Costs) -> Placed | None:
    """The best placement; None if every one is too large."""
    program = _Program(costs)
    found = program.minimize(program.row_of_time(), costs.memory_bytes)
    return found and _whole(costs, found)


def least_memory(costs: Costs) -> float:
    """Bytes of the placement that takes the fewest."""
    program = _Program(costs)
    return memory_of(costs, present(program.minimize(program.memory, np.inf)))


class _Program:
    """The rows of the program. Bytes count in units of all weights: HiGHS drops coefficients below 1e-9."""

    def __init__(self, costs: Costs) -> None:
        self.costs, kinds = costs, costs.kinds
        self.size = 2 * len(kinds) + 4
        self.share, self.experts, self.ring, self.time = range(2 * len(kinds), self.size)
        self.unit = sum(kind.held_bytes * kind.count for kind in kinds)
        held = {k: kind.held_bytes / self.unit for k, kind in enumerate(kinds)}
        self.memory = self._row({self.experts: 1.0, self.ring: 1.0} | held)

    def minimize(self, objective: np.ndarray, memory_bytes: float) -> Placed | None:
        costs, num = self.costs, len(self.costs.kinds)
        fits = (self.memory, -np.inf, memory_bytes / self.unit)
        rows = [fits, *self._ring(), *self._times(), *self._experts()]
        matrix, low, high = (np.array(part) for part in zip(*rows, strict=True))
        upper = np.full(self.size, np.inf)
        upper[:num] = [kind.count for kind in costs.kinds]
        upper[num : 2 * num] = 1
        upper[self.share] = 1
        whole = np.zeros(self.size)
        whole[: 2 * num] = 1
        found = milp(
            objective,
            constraints=LinearConstraint(matrix, low, high),  # pyright: ignore[reportArgumentType]
            bounds=Bounds(np.zeros(self.size), upper),  # pyright: ignore[reportArgumentType]
            integrality=whole,
            options={"time_limit": TIME_LIMIT_S, "mip_rel_gap": GAP},
        )
        if found.x is None:
            return None
        counts = tuple(round(value) for value in found.x[:num])
        return Placed(counts, float(np.clip(found.x[self.share], 0, 1)) if costs.experts else 1.0)

    def row_of_time(self) -> np.ndarray:
        return self._row({self.time: 1.0})

    def _row(self, values: dict[int, float]) -> np.ndarray:
        row = np.zeros(self.size)
        for place, value in values.items():
            row[place] = value
        return row

    def _ring(self) -> Iterator[Row]:
        num = len(self.costs.kinds)
        for k, kind in enumerate(self.costs.kinds):
            yield self._row({k: 1.0, num + k: kind.count}), kind.count, np.inf
            if kind.needs_ring:
                ring = (kind.held_bytes + self.costs.ahead_bytes) / self.unit
                yield self._row({self.ring: 1.0, num + k: -ring}), 0, np.inf

    def _experts(self) -> Iterator[Row]:
        experts = self.costs.experts
        if experts is None:
            yield self._row({self.experts: 1.0}), 0, 0
            return
        yield self._row({self.experts: 1.0}), experts.least_bytes / self.unit, np.inf
        yield self._row({self.experts: 1.0, self.share: -experts.held_bytes / self.unit}), 0, np.inf

    def _times(self) -> Iterator[Row]:
        """t - (seconds per byte) * bytes >= seconds in any case, of the disk and of the processor"""
        costs, experts = self.costs, self.costs.experts
        read = sum(kind.read_bytes * kind.count for kind in costs.kinds)
        compute = sum(kind.compute_s * kind.count for kind in costs.kinds)
        routed_s = experts.read_bytes / costs.disk.bytes_s if experts else 0.0
        for per_byte, always in ((1 / costs.disk.bytes_s, 0.0), (costs.disk.slowdown_s, compute)):
            row = {self.time: 1.0} | {k: per_byte * kind.read_bytes for k, kind in enumerate(costs.kinds)}
            if experts:
                row[self.share] = routed_s
            yield self._row(row), always + per_byte * read + routed_s, np.inf


def _whole(costs: Costs, placed: Placed) -> Placed:
    """The placement with the rest of the memory used. More of a kind in memory never makes a step longer."""
    counts = list(placed.counts)
    for k, kind in enumerate(costs.kinds):
        while counts[k] < kind.count:
            more = Placed((*counts[:k], counts[k] + 1, *counts[k + 1 :]), placed.expert_share)
            if memory_of(costs, more) > costs.memory_bytes:
                break
            counts[k] += 1
    return Placed(tuple(counts), placed.expert_share)
