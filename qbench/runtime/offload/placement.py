"""Which units stay in memory and which are read in each forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass

from qbench.runtime.offload.region import Region
from qbench.runtime.offload.streamer import CHUNK_BYTES, READERS
from qbench.runtime.offload.units import Unit

AHEAD_BYTES = READERS * CHUNK_BYTES  # beyond the unit that is computed with: requests in flight


@dataclass(frozen=True, slots=True)
class Placement:
    """pinned: units that stay; streamed: the others in the order of a forward pass; ring_bytes: memory for those"""

    pinned: frozenset[str]
    streamed: tuple[str, ...]
    ring_bytes: int


def least_bytes(units: Sequence[Unit], region: Region) -> int:
    """Memory below which a forward pass cannot run: its largest unit."""
    return max(region.held_bytes(unit.name) for unit in units)


def place(units: Sequence[Unit], region: Region, memory_bytes: int) -> Placement:
    """As many units pinned as fit next to the ring of the others.

    The largest are pinned first, since the ring must hold the largest that is not. Among equal units the pinned ones
    are spread evenly over the order, so that the disk can run ahead while each of them is computed with.
    """
    sizes = {unit.name: region.held_bytes(unit.name) for unit in units}
    if sum(sizes.values()) <= memory_bytes:
        return Placement(frozenset(sizes), (), 0)
    by_size = sorted(units, key=lambda unit: -sizes[unit.name])
    best = Placement(frozenset(), tuple(sizes), memory_bytes)
    for num_large in range(len(by_size)):
        ring = sizes[by_size[num_large].name] + AHEAD_BYTES
        large = by_size[:num_large]
        room = memory_bytes - ring - sum(sizes[unit.name] for unit in large)
        if room < 0:
            break
        pinned = {unit.name for unit in large} | _spread([unit for unit in units if unit not in large], sizes, room)
        if _total(pinned, sizes) >= _total(best.pinned, sizes):
            streamed = tuple(name for name in sizes if name not in pinned)
            best = Placement(frozenset(pinned), streamed, memory_bytes - _total(pinned, sizes))
    return best


def _total(names: set[str] | frozenset[str], sizes: dict[str, int]) -> int:
    return sum(sizes[name] for name in names)


def _spread(units: Sequence[Unit], sizes: dict[str, int], room: int) -> set[str]:
    """Units of at most `room` bytes together, evenly spaced."""
    for count in range(len(units), 0, -1):
        names = {units[(2 * index + 1) * len(units) // (2 * count)].name for index in range(count)}
        if _total(names, sizes) <= room:
            return names
    return set()
