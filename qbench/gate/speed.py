"""Speed: seconds of both sides taken in turn, in several pairs of fresh processes."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from qbench.gate.check import Check
from qbench.measure.launch import Launch
from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import student_mean, student_shift

# A slowdown up to this is never red: half of the 5 % that must be found, so that either end has as much room for noise.
FLOOR = 0.025


def slowdown(launches: Sequence[Launch], phase: str) -> Estimate:
    """How much more time than the base, 0.05 is 5 %, with an interval from the differences between launches.

    Two processes of the same code differ for as long as they live (by the addresses of their memory), so that more
    rounds do not make them more similar: a launch counts as one sample.
    source   Kalibera & Jones 2013, "Rigorous benchmarking in reasonable time", section 5 (levels of repetition)
    """
    return as_loss(student_mean(np.array([log_ratio(*launch.seconds[phase]) for launch in launches])))


def as_loss(of_logs: Estimate) -> Estimate:
    """The loss that a logarithm of a ratio of times means."""
    ratio = math.exp(of_logs.value)
    if of_logs.interval is None or of_logs.error is None:
        return Estimate(ratio - 1)
    low, high = map(math.expm1, of_logs.interval)
    return Estimate(ratio - 1, ratio * of_logs.error, low, high, of_logs.p_value)


def log_ratio(base: Sequence[float], now: Sequence[float]) -> float:
    """Median of one launch: a round's two samples follow one another, so that a slow moment slows both."""
    return median(math.log(second / first) for first, second in zip(base, now, strict=True))


def in_turn_checks(case: str, launches: Sequence[Launch], tokens: Mapping[str, int]) -> list[Check]:
    """One check a phase, of launches of both sides.

    tokens   phase -> how many a sample processes, for the tokens per second that people read
    """
    checks = []
    for phase, count in tokens.items():
        base, now = (count / typical([launch.seconds[phase][side] for launch in launches]) for side in (0, 1))
        loss, freedom = slowdown(launches, phase), len(launches) - 1
        checks.append(Check("speed", case, f"{phase}{count}", "tok/s", base, now, loss, freedom=freedom, floor=FLOOR))
    return checks


def apart_checks(
    case: str, baseline: Sequence[Launch], now: Sequence[Launch], tokens: Mapping[str, int]
) -> list[Check]:
    """The same for launches that were not in turn, as a report: it includes changes of the machine in between."""
    checks = []
    for phase, count in tokens.items():
        sides = [[launch.seconds[phase][0] for launch in side] for side in (baseline, now)]
        logs = (np.log([median(seconds) for seconds in side]) for side in sides)
        before, after = (count / typical(side) for side in sides)
        loss = as_loss(student_shift(*logs))
        checks.append(Check("speed", case, f"{phase}{count}", "tok/s", before, after, loss, floor=FLOOR, is_gate=False))
    return checks


def typical(seconds: Sequence[Sequence[float]]) -> float:
    """Median over launches of each launch's median round."""
    return float(median(median(rounds) for rounds in seconds))
