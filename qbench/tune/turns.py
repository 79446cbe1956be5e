"""Sides that take turns on the processor time of one thread."""

import time
from collections.abc import Callable, Mapping
from statistics import median

ROUNDS = 5
TURN_S = 0.002  # of calls in a turn, and one call at least


def median_seconds(sides: Mapping[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Side -> the median over its turns of the seconds of one call."""
    for call in sides.values():
        call()  # memory of the first call, and code from the disk
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        names = list(sides) if number % 2 == 0 else list(sides)[::-1]
        for name in names:
            samples[name].append(_turn(sides[name]))
    return {name: median(its) for name, its in samples.items()}


def _turn(call: Callable[[], object]) -> float:
    start, calls = time.thread_time(), 0
    while True:
        call()
        calls += 1
        elapsed = time.thread_time() - start
        if elapsed >= TURN_S:
            return elapsed / calls
