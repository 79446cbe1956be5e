"""`race --launches N`: the same models in N rounds of fresh processes, joined to one row per model and case."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import numpy as np

from qbench.measure.launch import Launch
from qbench.measure.metrics import Memory, Metrics
from qbench.progress import Progress
from qbench.run.options import DEFAULTS, RunOptions
from qbench.run.work import SpeedWork
from qbench.speed.rounds import PHASES
from qbench.speed.side_by_side import Contender, bench_side_by_side
from qbench.statistics.estimate import Estimate
from qbench.statistics.intervals import student_mean
from quant.present import present


def bench_launches(
    contenders: Sequence[Contender],
    cases: Sequence[SpeedWork],
    options: RunOptions = DEFAULTS,
    *,
    launches: int,
    pause_s: float = 0.0,
    threads: Sequence[int | None] = (None,),
    clock: str = "wall",
    progress: Progress | None = None,
) -> Iterator[list[Metrics]]:
    """As `bench_side_by_side`, each row joined from all launches.

    pause_s   before each launch after the first, so that a slow spell of the machine is not in all of them
    raises    InputError as `bench_side_by_side`
    """
    found: list[list[list[Metrics]]] = []  # [launch][case][contender]
    for number in range(launches):
        if number:
            time.sleep(pause_s)
        rows = bench_side_by_side(contenders, cases, options, threads=threads, clock=clock, progress=progress)
        found.append(list(rows))
    for of_case in zip(*found, strict=True):
        yield [join_launches(rows) for rows in zip(*of_case, strict=True)]


def join_launches(rows: Sequence[Metrics]) -> Metrics:
    """One row from one per launch: mean speeds and ratios, their intervals from the spread between launches.

    All else is the first launch's, but the largest peak of memory and the sum of the seconds.
    """
    first, speed = rows[0], present(rows[0].speed)
    means = {phase: _mean([_rate(row, phase) for row in rows]) for phase in PHASES}
    tokens = {"pp": (speed.batch or 1) * (speed.pp or 0), "tg": speed.batch or 1}
    ttft_ms, tpot_ms = (one and 1e3 * tokens[phase] / one.value for phase, one in means.items())
    figures = replace(
        present(speed.figures),
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms,
        pp_tok_s=means["pp"] and means["pp"].value,
        tg_tok_s=means["tg"] and means["tg"].value,
        interval={f"{phase}_tok_s": one and one.interval for phase, one in means.items()},
    )
    peaks = [present(row.memory).peak_rss_bytes or 0 for row in rows]
    return replace(
        first,
        speed=replace(speed, figures=figures),
        memory=replace(first.memory or Memory(), peak_rss_bytes=max(peaks)),
        ratio=_ratios(rows),
        launches=[_launch(row) for row in rows],
        seconds=sum(row.seconds or 0.0 for row in rows),
    )


def _rate(row: Metrics, phase: str) -> float | None:
    return row.figure(f"{phase}_tok_s")


def _mean(values: Sequence[float | None]) -> Estimate | None:
    """Geometric mean; None for a phase that was not measured."""
    known = [value for value in values if value is not None]
    return student_mean(np.log(known)).exp() if known else None


def _ratios(rows: Sequence[Metrics]) -> dict[str, dict[str, float | None]] | None:
    """Speed over the first contender's: one value per launch, in which both took turns."""
    if rows[0].ratio is None:
        return None
    of_phase = {phase: [present(row.ratio)[phase]["value"] for row in rows] for phase in rows[0].ratio}
    return {phase: asdict(present(_mean(values))) for phase, values in of_phase.items()}


def _launch(row: Metrics) -> Launch:
    """Seconds of each round, from its rate."""
    speed = present(row.speed)
    samples = present(present(speed.figures).samples)
    tokens = {phase: (speed.batch or 1) * (getattr(speed, phase) or 0) for phase in PHASES}
    seconds = {phase: [[tokens[phase] / rate for rate in samples.of(phase)]] for phase in PHASES if samples.of(phase)}
    peak = present(row.memory).peak_rss_bytes
    return Launch(seconds, None if peak is None else [peak])
