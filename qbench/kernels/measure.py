"""Contenders timed in turn, and their share of what this machine can do."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from qbench.kernels.benchmark import OURS, Absent, Benchmark, Contender
from qbench.measure.host.clocks import Clock
from qbench.measure.records.record import json_hash
from qbench.statistics import spread

CASE_KEYS = ("op", "shape", "tokens", "threads", "clock", "forced")
ROUNDS = 5  # turns of each contender: A B C, C B A, ...
TURN_S = 0.04  # of timed calls in a turn; a run is one call at least
# Threads of OpenMP wait for work at full speed some milliseconds after their last region, and would take a core from
# the next contender.
SETTLE_S = 0.012


def timing_protocol(clock: str) -> dict[str, Any]:
    """How contenders are timed, and 16 hex digits of it: times compare where these are equal."""
    about = {
        "name": "turns",
        "rounds": ROUNDS,
        "turn_s": TURN_S,
        "settle_s": SETTLE_S,
        "clock": clock,
        "of": "medians of rounds",
    }
    return about | {"hash": json_hash(about)}


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Measured in this run, with the threads of the run. cache_bytes: of the last level, 0: unknown"""

    bytes_per_s: float
    ops_per_s: Mapping[str, float]
    cache_bytes: int = 0

    def bounds_s(self, benchmark: Benchmark) -> dict[str, float]:
        """The least time of one call by what bounds it; nothing for a search, whose operations nobody counts.

        The memory's bandwidth bounds no calls that a cache keeps the bytes of.
        """
        if benchmark.operations is None:
            return {}
        bounds = {"operations": benchmark.operations / self.ops_per_s[benchmark.arithmetic]}
        if benchmark.is_cold(self.cache_bytes):
            bounds["bytes"] = benchmark.moved_bytes / self.bytes_per_s
        return bounds


def measure(benchmark: Benchmark, clock: Clock = time.perf_counter) -> dict[str, Any]:
    """Seconds of one call of each contender: {name: {seconds: [round][sample], how} | {absent | wrong: reason}}

    Nobody is timed where ours is wrong.
    """
    found: dict[str, dict[str, Any]] = {}
    ready: dict[str, Contender] = {}
    for name, build in benchmark.contenders.items():
        try:
            contender = build()
        except Absent as absent:
            found[name] = {"absent": str(absent)}
            continue
        if contender.run() is not None and clock is not time.perf_counter:
            found[name] = {"absent": "it runs in a process of its own, whose processor time is not counted"}
            continue
        off = benchmark.own_checks.get(name, benchmark.check)(contender.output())
        if off.is_right:
            ready[name], found[name] = contender, {"how": contender.how}
        else:
            found[name] = {"wrong": f"error {off.error:.3g}, expected at most {off.bound:.3g}"}
    if "wrong" in found[OURS]:
        return found | {name: {"absent": f"not timed, as {OURS} is wrong"} for name in ready}
    for name, seconds in take_turns({name: contender.run for name, contender in ready.items()}, clock).items():
        found[name]["seconds"] = [[sample / benchmark.calls for sample in samples] for samples in seconds]
    return found


def take_turns(
    runs: Mapping[str, Callable[[], float | None]], clock: Clock = time.perf_counter, rounds: int = ROUNDS
) -> dict[str, list[list[float]]]:
    """Seconds of each run, by round: contenders alternate, and every other round goes backwards."""
    seconds: dict[str, list[list[float]]] = {name: [] for name in runs}
    for round_ in range(rounds):
        for name in list(runs)[:: 1 if round_ % 2 == 0 else -1]:
            time.sleep(SETTLE_S)
            seconds[name].append(one_turn(runs[name], clock))
    return seconds


def one_turn(run: Callable[[], float | None], clock: Clock) -> list[float]:
    """Seconds of one run and as many more as fill the turn; another before them wakes the threads and never counts."""
    first = seconds_of(run, clock)
    return [seconds_of(run, clock) for _ in range(max(1, ceil(TURN_S / max(first, 1e-6))))]


def seconds_of(run: Callable[[], float | None], clock: Clock) -> float:
    start = clock()
    told = run()
    return clock() - start if told is None else told


def summarize(benchmark: Benchmark, found: dict[str, Any], ceilings: Ceilings) -> dict[str, Any]:
    """One row: our figures, and of each contender its time and how many times as fast as it ours is."""
    bounds = ceilings.bounds_s(benchmark)
    bound_by = max(bounds, key=bounds.__getitem__, default=None)
    least = None if bound_by is None else bounds[bound_by]
    row = {
        "op": benchmark.op,
        "shape": benchmark.shape,
        "tokens": benchmark.tokens,
        "calls": benchmark.calls,
        "moved_bytes": benchmark.moved_bytes,
        "operations": benchmark.operations,
        "arithmetic": benchmark.arithmetic,
        "least_ms": None if least is None else 1e3 * least,
        "bound_by": bound_by,
        "impls": {found[OURS]["how"]: 1} if "how" in found[OURS] else {},
        "contenders": {},
    }
    for name, entry in found.items():
        row["contenders"][name] = figures(benchmark, entry, least)
    ours = found[OURS].get("seconds")
    for name, entry in found.items():
        if name != OURS and ours and "seconds" in entry:
            row["contenders"][name]["ratio"] = ratio(ours, entry["seconds"])
    return row


def figures(benchmark: Benchmark, entry: dict[str, Any], least: float | None) -> dict[str, Any]:
    """Median, spread and raw samples in milliseconds, and what they come to; only the reason where there are none.

    The median is that of the rounds, as of the ratio: a round in a slow spell has fewer samples than others, and counts
    as much.
    """
    if "seconds" not in entry:
        return entry
    rounds = round_medians(entry["seconds"])
    median = float(np.median(rounds))
    return {
        "how": entry["how"],
        "ms": 1e3 * median,
        "gb_s": benchmark.moved_bytes / median / 1e9,
        "tera_ops": None if benchmark.operations is None else benchmark.operations / median / 1e12,
        "share": None if least is None else least / median,
        "spread_ms": spread([1e3 * seconds for seconds in rounds]),
        "samples_ms": [[1e3 * sample for sample in turn] for turn in entry["seconds"]],
    }


def round_medians(seconds: list[list[float]]) -> list[float]:
    return [float(np.median(turn)) for turn in seconds]


def ratio(ours: list[list[float]], theirs: list[list[float]]) -> dict[str, float]:
    """How many times as fast ours is, by the medians of each round: {median, min, max, mad}"""
    return spread([b / a for a, b in zip(round_medians(ours), round_medians(theirs), strict=True)])
