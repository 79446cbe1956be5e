"""Rates of the streamer: units of the model's own sizes pass through a ring, and nothing is computed with them.

A raw read is faster: units smaller than a request keep fewer bytes in flight, and memory moves from unit to unit.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from qbench.runtime.offload.direct_file import DirectFile
from qbench.runtime.offload.placement import AHEAD_BYTES
from qbench.runtime.offload.region import Region
from qbench.runtime.offload.streamer import Streamer
from qbench.runtime.offload.units import PAGE, Unit

ROUNDS, ROUND_S = 3, 0.4
LOOK_S = 0.003  # between two looks at a ring that fills


class PassingUnits:
    """Units that come and go in the order of a forward pass, as streamed weights do.

    path   of a file to read
    """

    def __init__(self, path: Path, units: Sequence[Unit]) -> None:
        region = Region(list(units))
        starts = starts_within(units, path.stat().st_size)
        self.streamer = Streamer(DirectFile(path), region, units, starts, {})
        self._names, self._at = [unit.name for unit in units], 0
        self.streamer.stream(self._names, max(region.held_bytes(name) for name in self._names) + AHEAD_BYTES)
        self.stay()

    def stay(self) -> None:
        """As before a layer whose weights are in memory"""
        self.streamer.need(self._names[self._at])

    def go_on(self) -> None:
        """As before a layer whose weights are streamed: the unit before it has been used."""
        self.streamer.done(self._names[self._at])
        self._at = (self._at + 1) % len(self._names)
        self.stay()

    def fill(self) -> None:
        """Wait until the disk is idle because the ring is full."""
        read = -1
        while read != (read := self.streamer.times.read_bytes):
            time.sleep(LOOK_S)

    def bandwidth(self) -> float:
        """Bytes per second, the median of some rounds."""
        for _ in self._names:
            self.go_on()  # fills the ring
        return median(self._rate() for _ in range(ROUNDS))

    def _rate(self) -> float:
        start, before = time.perf_counter(), self.streamer.times.read_bytes
        while time.perf_counter() - start < ROUND_S:
            for _ in self._names:
                self.go_on()
        return (self.streamer.times.read_bytes - before) / (time.perf_counter() - start)


def stream_rate(path: Path, units: Sequence[Unit]) -> float:
    """Bytes per second"""
    passing = PassingUnits(path, units)
    try:
        return passing.bandwidth()
    finally:
        passing.streamer.close()


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
