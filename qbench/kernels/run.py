"""Every kernel at the shapes of real models, as rows: `qbench kernels`."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from qbench.kernels.linear_benchmarks import ANY_SHAPE, COMPUTE_BOUND_TOKENS
from qbench.kernels.measure import KernelFigures, RunPeaks, TimingProtocol, measure, summarize, timing_protocol
from qbench.kernels.timed import benchmarks, timed_ops
from qbench.measure.host.conditions import CLOCKS, check_clock, forced
from qbench.measure.host.machine import last_level_cache_bytes, machine
from qbench.measure.host.placement import Placement, placement
from qbench.measure.subject import running_isa
from qbench.progress import Progress
from qbench.speed.peaks import largest_peak, measure_bandwidth, strongest_unit, unit_isas
from qbench.speed.units import CAN_DO
from qbench.words.written import nearest
from quant.errors import InputError
from quant.json_data import JsonData

PEAK_TRIES = 3  # before the first kernel of its kind: who shares the cores can halve a peak for a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions(JsonData):
    """The circumstances of a timing.

    bandwidth_bytes_per_s   one per round; empty for bytes that a cache keeps
    peak_ops_per_s, unit    of the strongest unit that could do the job; None: others kept the cores
    busy_before             share of the machine that others took
    """

    json_flat = ("placement",)

    threads: int
    clock: str
    forced: str | None
    protocol: TimingProtocol
    isa: str
    machine: str
    placement: Placement
    bandwidth_bytes_per_s: list[float]
    peak_ops_per_s: float | None
    unit: str | None
    busy_before: float
    load_average: list[float]


@dataclass(frozen=True, slots=True)
class KernelRow(JsonData):
    """The row of one case that `qbench kernels` prints and keeps."""

    json_flat = ("figures", "conditions")

    figures: KernelFigures
    conditions: Conditions


def run_kernels(
    only: str | Sequence[str],
    tokens: tuple[int, ...],
    threads: int,
    busy: float,
    clock: str = "wall",
    progress: Progress | None = None,
    shapes: Sequence[str] = ANY_SHAPE,
) -> Iterator[KernelRow]:
    """A row per kernel, shape and number of tokens; those of a shape come together.

    The bandwidth is measured in each round of a case that no cache keeps. The largest peak of the run so far counts.

    only, shapes   as `benchmarks` takes them
    busy           share of the machine that others took when this began
    clock          "wall", or "cpu" for the time that this process gets, which others hardly change: of one thread alone
    raises         InputError if no kernel has `only` in its name, or more than one thread is asked for with "cpu"
    """
    check_clock(clock, threads)
    cache_bytes, tried = last_level_cache_bytes(), set()
    # A benchmark holds its weights, so it is measured before the next is made.
    for (op, shape, arithmetic), group in groupby(
        benchmarks(only, tokens, threads, shapes), key=lambda one: (one.op, one.shape, one.arithmetic)
    ):
        if progress:
            progress(0, 0, f"{op} {shape}")
        for name in {*CAN_DO[arithmetic]} & unit_isas().keys() - tried:
            tried.add(name)
            for _ in range(PEAK_TRIES):
                largest_peak(name, threads)
        unit = strongest_unit(arithmetic, threads)
        for benchmark in group:
            bandwidths: list[float] = []
            probe = partial(append_bandwidth, bandwidths, threads) if benchmark.is_cold(cache_bytes) else None
            found = measure(benchmark, CLOCKS[clock], probe)
            conditions = Conditions(
                threads=threads,
                clock=clock,
                forced=forced(),
                protocol=timing_protocol(clock),
                isa=running_isa(),
                machine=machine().id,
                placement=placement(),
                bandwidth_bytes_per_s=bandwidths,
                peak_ops_per_s=None if unit is None else unit.ops_per_s,
                unit=None if unit is None else unit.name,
                busy_before=busy,
                load_average=list(os.getloadavg()),
            )
            machine_peaks = RunPeaks(bandwidths, {} if unit is None else {arithmetic: unit.ops_per_s}, cache_bytes)
            yield KernelRow(summarize(benchmark, found, machine_peaks), conditions)
    if not tried:
        told = only if isinstance(only, str) else " or ".join(only)
        raise InputError(
            f"no kernel that is timed at {', '.join(map(str, tokens))} tokens has {told!r} in its name"
            f"{nearest(told, timed_ops())}; attention is timed at 1 and from {COMPUTE_BOUND_TOKENS} on"
        )


def append_bandwidth(found: list[float], threads: int) -> None:
    """Measure the bandwidth now and append it."""
    found.append(measure_bandwidth(threads))
