"""Rates of the streamer: units of the model's own sizes pass through a ring, and nothing is computed.

A raw read into memory that is there already is faster: the streamer gives memory back after each unit, so that the
kernel clears a page before each read, and units smaller than a request keep fewer bytes in flight.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from qbench.runtime.offload.direct_file import DirectFile
from qbench.runtime.offload.placement import AHEAD_BYTES
from qbench.runtime.offload.region import Region
from qbench.runtime.offload.streamer import Streamer
from qbench.runtime.offload.units import PAGE, Unit

ROUNDS, ROUND_S = 3, 0.4


def stream_rates(path: Path, units: Sequence[Unit], starts: Mapping[str, int]) -> tuple[float, float]:
    """Bytes per second, and processor seconds per byte; medians.

    starts   unit -> first byte in the file
    """
    region = Region(list(units))
    streamer = Streamer(DirectFile(path), region, units, starts, {})
    ring = max(region.held_bytes(unit.name) for unit in units) + AHEAD_BYTES
    streamer.stream([unit.name for unit in units], ring)
    try:
        taken = [_round(streamer, units) for _ in range(ROUNDS + 1)]
    finally:
        streamer.close()
    rates, cpu = zip(*taken[1:], strict=True)  # the first fills the ring
    return median(rates), median(cpu)


def _round(streamer: Streamer, units: Sequence[Unit]) -> tuple[float, float]:
    start, cpu, before = time.perf_counter(), time.process_time(), streamer.times.read_bytes
    while time.perf_counter() - start < ROUND_S:
        for unit in units:
            streamer.need(unit.name)
            streamer.done(unit.name)
    num_bytes = streamer.times.read_bytes - before
    return num_bytes / (time.perf_counter() - start), (time.process_time() - cpu) / num_bytes


def starts_within(units: Sequence[Unit], file_bytes: int) -> dict[str, int]:
    """Places for the units in a file that is shorter than all of them: behind each other, and from its start again."""
    starts, end = {}, 0
    for unit in units:
        if end + unit.size_bytes > file_bytes:
            end = 0
        starts[unit.name] = end
        end += unit.size_bytes
    assert all(start % PAGE == 0 for start in starts.values())
    return starts
