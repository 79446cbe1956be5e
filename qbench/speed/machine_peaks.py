"""Peaks of this machine, and the time of their measurement: cases of one sweep share them while nothing changes."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from qbench.devices import CPU
from qbench.measure.host.busy import QUIET
from qbench.measure.speed_figures import MachinePeaks, SpeedFigures
from qbench.speed.peaks import last_cache_bytes, measure_op_peaks

MOST_AGE_S = 600.0  # a machine that warms up or throttles does so within minutes


@dataclass(frozen=True, slots=True)
class CurrentPeaks:
    """ops_per_s       peak operations per second of each arithmetic that has a peak; the bandwidth is measured in each
                    round instead
    busy_by_others  share of all cores' time that others took of the case that they were measured with, 0 to 1; None
                    where the system does not say
    time            seconds of the epoch
    cache_bytes     of the last level, of all cores in use; 0: unknown
    """

    threads: int
    ops_per_s: Mapping[str, float]
    busy_by_others: float | None
    time: float
    cache_bytes: int = 0

    @classmethod
    def of(cls, kept: MachinePeaks) -> "CurrentPeaks":
        """From those that an earlier row keeps."""
        if kept.threads is None or kept.ops_per_s is None or kept.time is None:
            raise ValueError(f"got {kept}, expected peaks that were measured")
        return cls(kept.threads, kept.ops_per_s, kept.busy_by_others, kept.time, cache_bytes=kept.cache_bytes)

    def kept(self) -> MachinePeaks:
        """The peaks as a row keeps them: every field, and their age."""
        return MachinePeaks(
            threads=self.threads,
            ops_per_s=dict(self.ops_per_s),
            busy_by_others=self.busy_by_others,
            time=self.time,
            cache_bytes=self.cache_bytes,
            measured_s_ago=max(0.0, time.time() - self.time),
        )

    def holds(self, threads: int, arithmetics: Iterable[str]) -> bool:
        """Whether they may still be taken for those of a case that begins now, which multiplies in these."""
        is_young = 0 <= time.time() - self.time <= MOST_AGE_S
        return is_young and threads == self.threads and all(name in self.ops_per_s for name in arithmetics)

    def is_like(self, busy_by_others: float | None) -> bool:
        """Whether others left as much of the machine when they were measured."""
        if self.busy_by_others is None or busy_by_others is None:
            return True
        return abs(self.busy_by_others - busy_by_others) <= QUIET


def measure_machine_peaks(threads: int, speed: SpeedFigures, *, device: str = CPU) -> CurrentPeaks:
    """Now, right after a case.

    speed    of the case, as `speed_statistics` returns it
    device   where the case ran
    """
    ops = measure_op_peaks(threads, device)
    return CurrentPeaks(threads, ops, busy_during(speed), time.time(), last_cache_bytes(device))


def busy_during(speed: SpeedFigures) -> float | None:
    """The median share of other processes during the samples; None if those were too short to measure it."""
    by_phase = (speed.samples and speed.samples.busy_by_others) or {}
    shares = [share for of_phase in by_phase.values() for share in of_phase]
    known = [share for share in shares if share is not None]
    return median(known) if known else None
