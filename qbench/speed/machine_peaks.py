"""Peaks of this machine, and the time of their measurement: cases of one sweep share them while nothing changes."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from qbench.measure.host.conditions import QUIET
from qbench.measure.speed_figures import MachinePeaks, SpeedFigures
from qbench.run.choices import CPU
from qbench.speed.peaks import last_cache_bytes, measure_op_peaks

MOST_AGE_S = 600.0  # a machine that warms up or throttles does so within minutes


@dataclass(frozen=True, slots=True)
class CurrentPeaks:
    """ops_per_s       operations per second of the strongest unit for each kind of operands, if it was measured; the
                    bandwidth is measured in each round instead
    units           names of the same units: "amx bf16"
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
    units: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, kept: MachinePeaks) -> "CurrentPeaks":
        """From those that an earlier row keeps."""
        if kept.threads is None or kept.ops_per_s is None or kept.time is None:
            raise ValueError(f"got {kept}, expected peaks that were measured")
        units = kept.units or {}
        rates = {name: rate for name, rate in kept.ops_per_s.items() if name in units}  # older rows name no unit
        return cls(kept.threads, rates, kept.busy_by_others, kept.time, kept.cache_bytes, units)

    def kept(self) -> MachinePeaks:
        """The peaks as a row keeps them: every field, and their age."""
        return MachinePeaks(
            threads=self.threads,
            ops_per_s=dict(self.ops_per_s),
            busy_by_others=self.busy_by_others,
            time=self.time,
            cache_bytes=self.cache_bytes,
            units=dict(self.units),
            measured_s_ago=max(0.0, time.time() - self.time),
        )

    def holds(self, threads: int, operands: Iterable[str]) -> bool:
        """Whether they may still be taken for those of a case that begins now, which has these operands."""
        is_young = 0 <= time.time() - self.time <= MOST_AGE_S
        return is_young and threads == self.threads and all(name in self.ops_per_s for name in operands)

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
    strongest = measure_op_peaks(threads, device)
    rates = {operands: unit.ops_per_s for operands, unit in strongest.items()}
    units = {operands: unit.name for operands, unit in strongest.items()}
    return CurrentPeaks(threads, rates, busy_during(speed), time.time(), last_cache_bytes(device), units)


def busy_during(speed: SpeedFigures) -> float | None:
    """The median share of other processes during the samples; None if those were too short to measure it."""
    by_phase = (speed.samples and speed.samples.busy_by_others) or {}
    shares = [share for of_phase in by_phase.values() for share in of_phase]
    known = [share for share in shares if share is not None]
    return median(known) if known else None
