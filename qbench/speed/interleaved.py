"""`interleave`: the same phases of one or several models in turn, until the figures are sure enough."""

import time
from collections.abc import Callable, Iterator, Sequence
from math import ceil, inf

import numpy as np

from qbench.measure.host.conditions import Watch
from qbench.measure.host.energy import NO_METER, Meter
from qbench.progress import Progress
from qbench.run.work import MOST_ROUNDS, SpeedWork
from qbench.speed.rounds import PHASES, Rounds, Samples, Side
from qbench.statistics.intervals import median_interval
from qbench.statistics.speed import speed_ratio

SEED = 20240217
# Threads of an OpenMP region wait for the next one at full speed, some milliseconds, and ours for less: neither may do
# so while the other is measured. A side of one thread has no waiting threads, and sides of one process share them.
SETTLE_S = 0.03
# Rounds after which the intervals are looked at: at first so many, then a fifth more each time. With these, intervals
# of 2 % hold the true median of independent samples in 95 % of cases or more, and in 93 % if each sample is correlated
# by half with the next; looking after every round from the fifth on, in 92 and 78 %.
FIRST_LOOK, GROWTH = 10, 1.2
IDLE_S = 1.0  # a thousand updates of RAPL's counters, ten of a graphics card's


def interleave(
    sides: Sequence[Side],
    case: SpeedWork,
    *,
    threads: int = 1,
    meter: Meter = NO_METER,
    probe: Callable[[], float | None] | None = None,
    progress: Progress | None = None,
) -> Rounds:
    """`interleave_cases` of one case."""
    cases = [case] * len(sides)
    return interleave_cases(sides, cases, threads=threads, meter=meter, probe=probe, progress=progress)


def interleave_cases(
    sides: Sequence[Side],
    cases: Sequence[SpeedWork],
    *,
    threads: int = 1,
    meter: Meter = NO_METER,
    probe: Callable[[], float | None] | None = None,
    progress: Progress | None = None,
) -> Rounds:
    """Rounds of every phase and side in turn, only one at work at any time, in an order that changes at random.

    A slow spell of the machine then hits all sides equally, and so does a drift. Every second round has the order of
    the round before it in reverse, so that each side is before another one as often as after it.

    cases    one per side; phases are those of the first, whose repetitions, precision and budget hold for all
    threads  that a side works with
    meter    of the energy; the machine's idle power is measured first, if possible
    probe    called at the end of each round, when no side works: the machine's peaks at that time; None: not measured
    """
    case, orders = cases[0], random_orders(len(sides))
    calls = [_calls(side, its) for side, its in zip(sides, cases, strict=True)]
    settle = threads > 1 and len({side.pid for side in sides}) > 1
    watches = [Watch(side.pid, threads, meter) for side in sides]
    rounds = Rounds({phase: [Samples() for _ in sides] for phase in calls[0]}, meter, idle_watts(meter))
    start = time.perf_counter()
    while not rounds.stopped:
        order = next(orders)
        for phase in rounds.of:
            for side in order:
                if settle:
                    time.sleep(SETTLE_S)
                watches[side].start()
                rounds.of[phase][side].seconds.append(sides[side].seconds(*calls[side][phase]))
                rounds.of[phase][side].conditions.append(watches[side].stop())
        if probe and (probed := probe()) is not None:
            rounds.probed.append(probed)
        rounds.stopped = why_stop(rounds, case, time.perf_counter() - start)
        if progress:
            more = 0 if rounds.stopped else 1
            progress(rounds.done, max(case.repetitions, rounds.done + more), "repetitions")
    return rounds


def random_orders(num_sides: int) -> Iterator[list[int]]:
    """Orders of sides without end: a random one, its reverse, the next random one."""
    shuffle = np.random.default_rng(SEED).permutation
    while True:
        order = shuffle(num_sides).tolist()
        yield order
        yield order[::-1]


def idle_watts(meter: Meter) -> dict[str, float]:
    """Watts by each counter of the machine while no side works."""
    if not meter.counters:
        return {}
    before, start = meter.read(), time.perf_counter()
    time.sleep(IDLE_S)
    spent = meter.since(before)
    seconds = time.perf_counter() - start
    return {name: joules / seconds for name, joules in spent.items()}


def _calls(side: Side, case: SpeedWork) -> dict[str, tuple[list[list[int]], int]]:
    """phase -> (tokens, step) of Side.seconds, after the depth is held"""
    tokens = random_tokens(side.vocab_size, case)
    side.hold(tokens[:, : case.depth].tolist(), case.longest)
    later = tokens[:, case.depth :]
    calls = {"pp": (later[:, : case.pp].tolist(), case.pp), "tg": (later[:, : case.tg].tolist(), 1)}
    return {phase: calls[phase] for phase in PHASES if getattr(case, phase)}


def random_tokens(vocab_size: int, case: SpeedWork) -> np.ndarray:
    """[B, longest]"""
    return np.random.default_rng(SEED).integers(vocab_size, size=(case.batch, case.longest))


def why_stop(rounds: Rounds, case: SpeedWork, elapsed_s: float) -> str:
    """As Rounds.stopped has it; empty to go on."""
    done = rounds.done
    if done < case.repetitions:
        return ""
    if case.precision is None or done >= MOST_ROUNDS:
        return "repetitions"
    if is_look(done) and all(_half_width(rounds, phase) <= case.precision for phase in rounds.of):
        return "narrow"
    return "budget" if case.budget_s is not None and elapsed_s >= case.budget_s else ""


def is_look(done: int) -> bool:
    """Whether the intervals are looked at after so many rounds: who looks each time stops at the luckiest moment."""
    look = FIRST_LOOK
    while look < done:
        look = ceil(GROWTH * look)
    return look == done


def _half_width(rounds: Rounds, phase: str) -> float:
    """The widest, as a share of its value: of one side its median, of several the ratios of the others to the first."""
    first, *others = (rounds.steady(phase, side) for side in range(len(rounds.of[phase])))
    if not others:
        interval = median_interval(first)
        return inf if interval is None else (interval[1] - interval[0]) / (2 * float(np.median(first)))
    return max(_half_width_of_ratio(first, other) for other in others)


def _half_width_of_ratio(first: list[float], other: list[float]) -> float:
    ratio = speed_ratio(first, other)
    return inf if ratio.interval is None else (ratio.interval[1] - ratio.interval[0]) / (2 * ratio.value)
