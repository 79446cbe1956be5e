"""Contenders timed in turn, and their share of what this machine can do."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from qbench.harness.host.clocks import Clock
from qbench.harness.records.record import case_key
from qbench.kernels.benchmark import OURS, Absent, Benchmark, Contender
from qbench.statistics import spread

CASE_KEYS = ("op", "shape", "tokens", "threads", "clock")
ROUNDS = 5  # turns of each contender: A B C, C B A, ...
TURN_S = 0.04  # of timed calls in a turn; a run is one call at least
# Threads of OpenMP wait for work at full speed some milliseconds after their last region, and would take a core from
# the next contender.
SETTLE_S = 0.012


def timing_protocol(clock: str) -> dict[str, Any]:
    """How contenders are timed, and 16 hex digits of it: times compare where these are equal."""
    about = {"name": "turns", "rounds": ROUNDS, "turn_s": TURN_S, "settle_s": SETTLE_S, "clock": clock}
    return about | {"hash": case_key(about)}


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Measured in this run, with the threads of the run."""

    bytes_per_s: float
    ops_per_s: Mapping[str, float]

    def least_s(self, benchmark: Benchmark) -> float:
        """The least time of one call: to move its bytes or to do its operations, whichever takes longer."""
        return max(
            benchmark.moved_bytes / self.bytes_per_s, benchmark.operations / self.ops_per_s[benchmark.arithmetic]
        )


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
    first = seconds_of(run, clock)  # wakes the threads; a run that fills the turn by itself counts
    if first >= TURN_S:
        return [first]
    return [seconds_of(run, clock) for _ in range(ceil(TURN_S / max(first, 1e-6)))]


def seconds_of(run: Callable[[], float | None], clock: Clock) -> float:
    start = clock()
    told = run()
    return clock() - start if told is None else told


def summarize(benchmark: Benchmark, found: dict[str, Any], ceilings: Ceilings) -> dict[str, Any]:
    """One row: our figures, and of each contender its time and how many times as fast as it ours is."""
    least = ceilings.least_s(benchmark)
    row = {
        "op": benchmark.op,
        "shape": benchmark.shape,
        "tokens": benchmark.tokens,
        "calls": benchmark.calls,
        "moved_bytes": benchmark.moved_bytes,
        "operations": benchmark.operations,
        "arithmetic": benchmark.arithmetic,
        "least_ms": 1e3 * least,
        "bound_by": "bytes" if least == benchmark.moved_bytes / ceilings.bytes_per_s else "operations",
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


def figures(benchmark: Benchmark, entry: dict[str, Any], least: float) -> dict[str, Any]:
    """Median, spread and raw samples in milliseconds, and what they come to; only the reason where there are none."""
    if "seconds" not in entry:
        return entry
    samples = [sample for turn in entry["seconds"] for sample in turn]
    median = float(np.median(samples))
    return {
        "how": entry["how"],
        "ms": 1e3 * median,
        "gb_s": benchmark.moved_bytes / median / 1e9,
        "tera_ops": benchmark.operations / median / 1e12,
        "share": least / median,
        "spread_ms": spread([1e3 * sample for sample in samples]),
        "samples_ms": [[1e3 * sample for sample in turn] for turn in entry["seconds"]],
    }


def ratio(ours: list[list[float]], theirs: list[list[float]]) -> dict[str, float]:
    """How many times as fast ours is, by the medians of each round: {median, min, max, mad}"""
    return spread([float(np.median(b) / np.median(a)) for a, b in zip(ours, theirs, strict=True)])
