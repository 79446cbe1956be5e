"""The solver against every placement of small cases, and against placements that people set by hand."""

from itertools import product

import numpy as np
import pytest

from qbench.plan.offload.costs import Costs, DiskRates, Experts, Kind, Placed, memory_of, ring_of, step_seconds
from qbench.plan.offload.solve import GAP, least_memory, solve

MB = 1e6
SHARES = np.linspace(0, 1, 41)  # of experts that exhaustive search tries


def random_costs(seed: int, *, with_experts: bool = False) -> Costs:
    """Two or three kinds of up to four units, keys and values of three layers, and a memory that may be too small."""
    rng = np.random.default_rng(seed)

    def kind(name: str, needs_ring: bool = True) -> Kind:
        held = float(rng.integers(1, 60)) * MB
        return Kind(name, int(rng.integers(1, 5)), held, held * rng.uniform(0.5, 1), rng.uniform(0, 0.03), needs_ring)

    kinds = [kind(f"layer {number}") for number in range(rng.integers(1, 3))] + [kind("head"), kind("kv", False)]
    held = sum(one.held_bytes * one.count for one in kinds)
    experts = Experts(80 * MB, 10 * MB, rng.uniform(5, 80) * MB) if with_experts else None
    return Costs(
        kinds=tuple(kinds),
        memory_bytes=rng.uniform(0.2, 1.2) * held,
        ahead_bytes=float(rng.integers(0, 8)) * MB,
        disk=DiskRates(rng.uniform(0.2, 3) * 1e9, rng.uniform(0, 1e-3), rng.uniform(0, 1e-9)),
        experts=experts,
    )


def best_by_trying(costs: Costs) -> float | None:
    """Seconds of the best of all placements that fit; None if every one is too large."""
    counts = product(*(range(kind.count + 1) for kind in costs.kinds))
    shares = (1.0,) if costs.experts is None else SHARES
    fitting = [
        step_seconds(costs, placed)
        for some in counts
        for placed in (Placed(some, share) for share in shares)
        if memory_of(costs, placed) <= costs.memory_bytes
    ]
    return min(fitting, default=None)


@pytest.mark.parametrize("with_experts", [False, True], ids=["dense", "experts"])
@pytest.mark.parametrize("seed", range(12))
def test_no_placement_is_better_than_the_solvers(seed, with_experts):
    costs = random_costs(seed, with_experts=with_experts)
    placed, best = solve(costs), best_by_trying(costs)
    if placed is None:
        assert best is None
        return
    assert memory_of(costs, placed) <= costs.memory_bytes * (1 + GAP)
    assert best is not None and step_seconds(costs, placed) <= best * (1 + GAP)


def hand_set(costs: Costs) -> list[Placed]:
    """Twenty ways that come to mind: keys and values first or last, the first layers, the head, equal shares."""
    shares = [tuple(int(kind.count * part) for kind in costs.kinds) for part in np.linspace(0, 1, 10)]
    weights_only = [(*counts[:-1], 0) for counts in shares[1:]]
    kv_only = tuple(kind.count if kind.name == "kv" else 0 for kind in costs.kinds)
    return [Placed(counts) for counts in (*shares, *weights_only, kv_only)]


@pytest.mark.parametrize("share", [0.15, 0.4, 0.8])
def test_twenty_hand_set_placements_of_a_large_model(share):
    """Thirty-two layers of two sizes, a head as large as three of them, and keys and values of 16 sequences."""
    kinds = (
        Kind("layer", 16, 140 * MB, 139 * MB, 0.006),
        Kind("layer", 16, 124 * MB, 123 * MB, 0.005),
        Kind("head", 1, 432 * MB, 431 * MB, 0.02),
        Kind("kv", 32, 17 * MB, 17.2 * MB, 0.001, needs_ring=False),
    )
    costs = Costs(kinds, share * sum(kind.held_bytes * kind.count for kind in kinds), 33 * MB, DiskRates(0.7e9))
    placed = solve(costs)
    assert placed is not None and memory_of(costs, placed) <= costs.memory_bytes
    others = [one for one in hand_set(costs) if memory_of(costs, one) <= costs.memory_bytes]
    assert len(hand_set(costs)) == 20 and others
    assert step_seconds(costs, placed) <= min(step_seconds(costs, one) for one in others) * (1 + GAP)


@pytest.mark.parametrize("seed", range(6))
def test_the_smallest_named_memory_works_and_less_fails(seed):
    costs = random_costs(seed)
    least = least_memory(costs)
    fitting = Costs(costs.kinds, least * (1 + 1e-5), costs.ahead_bytes, DiskRates(costs.disk.bytes_s))
    assert solve(fitting) is not None
    assert solve(Costs(costs.kinds, least * 0.999, costs.ahead_bytes, DiskRates(costs.disk.bytes_s))) is None


def test_terms_of_a_step():
    """By hand: 2 of 3 layers are read, 20 MB at 1 GB/s; compute 3 * 4 ms, and 1 ns per byte; 6 MB of experts."""
    kinds = (Kind("layer", 3, 12 * MB, 10 * MB, 0.004), Kind("kv", 1, 5 * MB, 5 * MB, 0.0, needs_ring=False))
    costs = Costs(kinds, 100 * MB, 2 * MB, DiskRates(1e9, slowdown_s=1e-9), Experts(40 * MB, 4 * MB, 8 * MB))
    assert step_seconds(costs, Placed((1, 1), 0.25)) == pytest.approx(max(0.02, 0.012 + 0.02) + 0.006)
    assert ring_of(costs, (1, 1)) == 14 * MB and ring_of(costs, (3, 0)) == 0
    assert memory_of(costs, Placed((1, 1), 0.25)) == (12 + 5 + 14 + 10) * MB
