"""Which units stay in memory and which are read in each forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass

from qbench.runtime.offload.region import Region, held_size
from qbench.runtime.offload.streamer import CHUNK_BYTES, READERS
from qbench.runtime.offload.units import Unit

AHEAD_BYTES = READERS * CHUNK_BYTES  # beyond the unit that is computed with: requests in flight


@dataclass(frozen=True, slots=True)
class Placement:
    """Shares of the memory for weights.

    pinned        units that stay
    streamed      the others in the order of a forward pass, through ring_bytes
    expert_bytes  for experts, which are read when they are chosen
    """

    pinned: frozenset[str]
    streamed: tuple[str, ...]
    ring_bytes: int
    expert_bytes: int = 0


def least_bytes(units: Sequence[Unit]) -> int:
    """Memory below which a forward pass cannot run: its largest unit, and its largest expert."""
    return sum(max((held_size(unit) for unit in some), default=0) for some in split_experts(units))


def split_experts(units: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
    """Units that each forward pass reads, and experts."""
    return [unit for unit in units if unit.expert is None], [unit for unit in units if unit.expert is not None]


def place(units: Sequence[Unit], region: Region, memory_bytes: int, num_chosen: int = 1) -> Placement:
    """Units of every pass first, experts in the rest: a pass reads the former whole, and of the latter few.

    num_chosen   experts of a token, for which there is room if possible, so that one call finds all of its own
    source       KTransformers: dense parts on the fast device, experts in the large memory
    """
    always, experts = split_experts(units)
    sizes = [region.held_bytes(unit.name) for unit in experts]
    least, whole = sum(sorted(sizes)[-num_chosen:]), sum(region.held_bytes(unit.name) for unit in units) - sum(sizes)
    if not experts:
        return _place_always(always, region, memory_bytes)
    least_always = least_bytes(always)
    expert_bytes = min(sum(sizes), max(memory_bytes - whole, min(least, memory_bytes - least_always)))
    placed = _place_always(always, region, memory_bytes - expert_bytes)
    return Placement(placed.pinned, placed.streamed, placed.ring_bytes, expert_bytes)


def _place_always(units: Sequence[Unit], region: Region, memory_bytes: int) -> Placement:
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
