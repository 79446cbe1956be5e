"""Contenders timed in turn, and their share of this machine's peaks."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import median
from typing import ClassVar

import numpy as np

from qbench.kernels.benchmark import OURS, Absent, Benchmark, Contender, KernelSizes
from qbench.measure.host.conditions import Clock
from qbench.measure.records.record import json_hash
from qbench.speed.shares import share_of_rounds
from qbench.statistics.intervals import spread
from quant.json_data import JsonData

CASE_KEYS = ("op", "shape", "tokens", "threads", "clock", "forced")
ROUNDS = 5  # turns of each contender: A B C, C B A, ...
TURN_S = 0.04  # of timed calls in a turn; a run is one call at least
# Threads of OpenMP wait for work at full speed some milliseconds after their last region, and would take a core from
# the next contender.
SETTLE_S = 0.012


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingProtocol(JsonData):
    """How contenders are timed. hash: 16 hex digits of the rest; times compare if these are equal"""

    json_omits = ("hash",)

    name: str = "turns"
    rounds: int
    turn_s: float
    settle_s: float
    clock: str
    of: str = "medians of rounds"
    hash: str | None = None


def timing_protocol(clock: str) -> TimingProtocol:
    protocol = TimingProtocol(rounds=ROUNDS, turn_s=TURN_S, settle_s=SETTLE_S, clock=clock)
    return replace(protocol, hash=json_hash(protocol.to_json()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of a contender: its times, or why there are no times.

    how      the code that ran
    seconds  of one call, [round][sample]
    absent, wrong   the reason
    """

    how: str | None = None
    seconds: list[list[float]] | None = None
    absent: str | None = None
    wrong: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures(JsonData):
    """Median, spread and raw samples of one call in milliseconds, and the rates that they come to.

    The median is that of the rounds, as is the ratio's: a round in a slow spell has fewer samples than others, and
    counts as much.
    share    of the roofline, as in `qbench.speed.shares`; None for a search
    ratio    how many times as fast as this contender ours is: {median, min, max, mad}; not of ours itself
    """

    json_omits = ("ratio",)

    how: str
    ms: float
    gb_s: float
    tera_ops: float | None
    share: float | None
    spread_ms: dict[str, float]
    samples_ms: list[list[float]]
    ratio: dict[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Untimed(JsonData):
    """Why a contender has no times: it is absent, or wrong."""

    json_omits = ("absent", "wrong")

    absent: str | None = None
    wrong: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFigures(JsonData):
    """The figures of one kernel at one shape and number of tokens.

    least_ms  shortest time of a call by its bound
    impls     implementation of ours -> 1; empty if ours has no times
    """

    json_flat: ClassVar[tuple[str, ...]] = ("sizes",)

    sizes: KernelSizes
    least_ms: float | None
    bound_by: str | None
    impls: dict[str, int]
    contenders: dict[str, Figures | Untimed]


@dataclass(frozen=True, slots=True)
class RunPeaks:
    """Measured in this run, with the threads of the run.

    bytes_per_s   one per round; empty for bytes that a cache keeps
    cache_bytes   of the last level, 0: unknown
    """

    bytes_per_s: Sequence[float]
    ops_per_s: Mapping[str, float]
    cache_bytes: int = 0

    def bounds_s(self, benchmark: Benchmark) -> dict[str, list[float]]:
        """The least time of one call in each round, for each bound; empty for a search, whose operations nobody counts,
        and if the strongest unit was not measured.

        The memory's bandwidth bounds no calls that a cache keeps the bytes of.
        """
        if benchmark.operations is None or benchmark.arithmetic not in self.ops_per_s:
            return {}
        is_cold = benchmark.is_cold(self.cache_bytes) and bool(self.bytes_per_s)
        rounds = len(self.bytes_per_s) if is_cold else 1
        bounds = {"operations": [benchmark.operations / self.ops_per_s[benchmark.arithmetic]] * rounds}
        if is_cold:
            bounds["bytes"] = [benchmark.moved_bytes / speed for speed in self.bytes_per_s]
        return bounds


def measure(
    benchmark: Benchmark, clock: Clock = time.perf_counter, probe: Callable[[], None] | None = None
) -> dict[str, Found]:
    """Contender -> its seconds per call. Nobody is timed if ours is wrong.

    probe   called at the end of each round
    """
    found: dict[str, Found] = {}
    ready: dict[str, Contender] = {}
    for name, build in benchmark.contenders.items():
        try:
            contender = build()
        except Absent as absent:
            found[name] = Found(absent=str(absent))
            continue
        if contender.run() is not None and clock is not time.perf_counter:
            found[name] = Found(absent="it runs in a process of its own, whose processor time is not counted")
            continue
        off = benchmark.own_checks.get(name, benchmark.check)(contender.output())
        if off.is_right:
            ready[name], found[name] = contender, Found(how=contender.how)
        else:
            found[name] = Found(wrong=f"error {off.error:.3g}, expected at most {off.bound:.3g}")
    if found[OURS].wrong is not None:
        return found | {name: Found(absent=f"not timed, as {OURS} is wrong") for name in ready}
    runs = {name: contender.run for name, contender in ready.items()}
    for name, seconds in take_turns(runs, clock, probe=probe).items():
        calls = [[sample / benchmark.calls for sample in samples] for samples in seconds]
        found[name] = replace(found[name], seconds=calls)
    return found


def take_turns(
    runs: Mapping[str, Callable[[], float | None]],
    clock: Clock = time.perf_counter,
    rounds: int = ROUNDS,
    probe: Callable[[], None] | None = None,
) -> dict[str, list[list[float]]]:
    """Seconds of each run, by round: contenders alternate, and every other round goes backwards."""
    seconds: dict[str, list[list[float]]] = {name: [] for name in runs}
    for round_ in range(rounds):
        for name in list(runs)[:: 1 if round_ % 2 == 0 else -1]:
            time.sleep(SETTLE_S)
            seconds[name].append(one_turn(runs[name], clock))
        if probe:
            probe()
    return seconds


def one_turn(run: Callable[[], float | None], clock: Clock) -> list[float]:
    """Seconds of one run and as many more as fill the turn; another before them wakes the threads and never counts."""
    first = seconds_of(run, clock)
    return [seconds_of(run, clock) for _ in range(max(1, ceil(TURN_S / max(first, 1e-6))))]


def seconds_of(run: Callable[[], float | None], clock: Clock) -> float:
    start = clock()
    told = run()
    return clock() - start if told is None else told


def summarize(benchmark: Benchmark, found: Mapping[str, Found], machine_peaks: RunPeaks) -> KernelFigures:
    """One row: our figures, and of each contender its time and how many times as fast as it ours is."""
    bounds = machine_peaks.bounds_s(benchmark)
    bound_by = max(bounds, key=lambda name: median(bounds[name]), default=None)
    least = [max(of_round) for of_round in zip(*bounds.values(), strict=True)]
    ours = found[OURS]
    contenders: dict[str, Figures | Untimed] = {}
    for name, entry in found.items():
        shown = figures(benchmark, entry, least)
        if isinstance(shown, Figures) and name != OURS and ours.seconds and entry.seconds:
            shown = replace(shown, ratio=ratio(ours.seconds, entry.seconds))
        contenders[name] = shown
    return KernelFigures(
        sizes=benchmark.sizes,
        least_ms=1e3 * median(least) if least else None,
        bound_by=bound_by,
        impls={} if ours.how is None else {ours.how: 1},
        contenders=contenders,
    )


def figures(benchmark: Benchmark, entry: Found, least: Sequence[float]) -> Figures | Untimed:
    """least: seconds of a call at the roofline, one per round or one for all; empty for a search"""
    if entry.how is None or entry.seconds is None:
        return Untimed(absent=entry.absent, wrong=entry.wrong)
    rounds = round_medians(entry.seconds)
    middle = float(np.median(rounds))
    of_rounds = least if len(least) == len(rounds) else [*least] * len(rounds)
    return Figures(
        how=entry.how,
        ms=1e3 * middle,
        gb_s=benchmark.moved_bytes / middle / 1e9,
        tera_ops=None if benchmark.operations is None else benchmark.operations / middle / 1e12,
        share=share_of_rounds(of_rounds, rounds) if least else None,
        spread_ms=spread([1e3 * seconds for seconds in rounds]),
        samples_ms=[[1e3 * sample for sample in turn] for turn in entry.seconds],
    )


def round_medians(seconds: list[list[float]]) -> list[float]:
    return [float(np.median(turn)) for turn in seconds]


def ratio(ours: list[list[float]], theirs: list[list[float]]) -> dict[str, float]:
    """How many times as fast ours is, by the medians of each round: {median, min, max, mad}"""
    return spread([b / a for a, b in zip(round_medians(ours), round_medians(theirs), strict=True)])
