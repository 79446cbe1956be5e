"""The time of a decode step under a placement: one formula, which the solver minimizes and tests evaluate.

    disk     = bytes that are read from it / its bandwidth
    compute  = all layers and the head, as if all weights were in memory
    experts  = bytes of routed experts that are read / the bandwidth
    step     = max(disk, compute + slowdown by the reads) + experts

The reads of the next layers overlap the computation of this one, in memory for the largest streamed unit and the
requests in flight. Threads share the cores with the reads, so that computation is longer while the disk reads.
`pipeline` predicts the time of the placement that is chosen, whose overlap is not whole.

source   FlexGen, arXiv:2303.06865, section 4.3: the slowest of the overlapped parts is the time of a layer
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from quant.json_data import JsonData


@dataclass(frozen=True, slots=True)
class Kind:
    """Equal units of weights, or keys and values of equal layers.

    held_bytes   of one in memory; read_bytes: of one from the disk, once per step
    compute_s    of one, in memory or not
    needs_ring   whether one that is streamed passes through the ring; keys and values have memory of their own
    """

    name: str
    count: int
    held_bytes: float
    read_bytes: float
    compute_s: float
    needs_ring: bool = True


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of all layers, any share of which may be in memory.

    held_bytes   of all; least_bytes: of those that one call needs
    read_bytes   per step if no expert is in memory
    """

    held_bytes: float
    least_bytes: float
    read_bytes: float


@dataclass(frozen=True, slots=True)
class DiskRates(JsonData):
    """Direct reads with several requests in flight.

    latency_s   seconds of a read of one page
    slowdown_s  seconds by which computation is longer per byte that is read meanwhile
    """

    json_keys: ClassVar[Mapping[str, str]] = {
        "bytes_s": "disk_bytes_s",
        "latency_s": "disk_latency_s",
        "slowdown_s": "disk_cpu_s",
    }

    bytes_s: float
    latency_s: float = 0.0
    slowdown_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Costs:
    """memory_bytes: for all that is placed; ahead_bytes: of requests in flight, in addition to the largest unit."""

    kinds: tuple[Kind, ...]
    memory_bytes: float
    ahead_bytes: float
    disk: DiskRates
    experts: Experts | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """How many of each kind stay in memory, and the share of the experts that does."""

    counts: tuple[int, ...]
    expert_share: float = 1.0


def memory_of(costs: Costs, placed: Placed) -> float:
    """Bytes that a placement takes."""
    held = sum(kind.held_bytes * count for kind, count in zip(costs.kinds, placed.counts, strict=True))
    if costs.experts is not None:
        held += max(costs.experts.least_bytes, placed.expert_share * costs.experts.held_bytes)
    return held + ring_of(costs, placed.counts)


def ring_of(costs: Costs, counts: Sequence[int]) -> float:
    """Bytes through which streamed units pass: the largest, and the requests in flight; 0 if all stay."""
    streamed = [
        kind.held_bytes
        for kind, count in zip(costs.kinds, counts, strict=True)
        if kind.needs_ring and count < kind.count
    ]
    return max(streamed) + costs.ahead_bytes if streamed else 0.0


def step_seconds(costs: Costs, placed: Placed) -> float:
    """Seconds of a step, which the solver makes small. Routed experts are read when they are chosen: no overlap."""
    read, routed = read_bytes(costs, placed), expert_bytes(costs, placed)
    compute = sum(kind.compute_s * kind.count for kind in costs.kinds)
    busy = compute + costs.disk.slowdown_s * read
    return max(read / costs.disk.bytes_s, busy) + routed / costs.disk.bytes_s


def read_bytes(costs: Costs, placed: Placed) -> float:
    """From the disk per step, without experts."""
    return sum(kind.read_bytes * (kind.count - count) for kind, count in zip(costs.kinds, placed.counts, strict=True))


def expert_bytes(costs: Costs, placed: Placed) -> float:
    """Bytes of routed experts that a step reads from the disk."""
    return 0.0 if costs.experts is None else costs.experts.read_bytes * (1 - placed.expert_share)
