"""Launches as records keep them: the row of a case, and the rows of kind AGAIN that measured its speed once more."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median

from qbench.measure.metrics import Metrics
from qbench.measure.records.kinds import AGAIN
from qbench.measure.records.record import Record, read_files
from qbench.run.case import Case
from qbench.run.work import SpeedWork
from qbench.statistics.launches import LaunchedSpeed, launched_speeds
from qbench.store.load import files_with

SPEEDS = ("pp_tok_s", "tg_tok_s")

Row = tuple[str, str, str | None]  # key, machine id and code
KeptLaunches = Mapping[Row, Mapping[str, LaunchedSpeed]]  # row -> phase -> its speed


@dataclass(frozen=True, slots=True)
class Work:
    """Machine with its processor, threads and sizes of a speed; None for a value that a row does not have."""

    machine: str
    processor: str | None
    threads: int | None
    batch: int | None
    pp: int | None
    tg: int | None
    depth: int | None


def row_of(record: Record) -> Row:
    """The row that this record belongs to: its own, or that of the case that it measured once more."""
    again = isinstance(record.case, Case) and record.case.kind == AGAIN
    return (record.model_case.of or "") if again else record.key, record.machine.id, record.code


def work_of(record: Record) -> Work:
    """The work of a model's row. A model that `compare` measured itself has neither threads nor speeds."""
    case = record.model_case
    work = case.speed or SpeedWork(repetitions=1, lacks=frozenset({"pp", "tg", "depth"}))
    pp, tg, depth = (None if name in work.lacks else getattr(work, name) for name in ("pp", "tg", "depth"))
    where = record.machine.id, record.machine.processor
    return Work(*where, case.threads, None if "batch" in case.lacks else case.batch, pp, tg, depth)


def _is_launch_of(first: Record | None, record: Record) -> bool:
    """Whether both speeds are of one case on one processor."""
    return first is not None and first.machine.runs_like(record.machine)


def kept_launches(paths: Sequence[str]) -> KeptLaunches:
    """Speeds of all rows whose work some row measured in several launches; launches of other code do not join.

    raises   InputError for a file that cannot be read
    """
    if not files_with(paths, (AGAIN,)):
        return {}  # most records have no launches, and need not be read
    return launches_of(read_files(paths))


def launches_of(records: Iterable[Record]) -> KeptLaunches:
    """As `kept_launches`, of records that are read already."""
    newest: dict[tuple[Row, str], Record] = {}  # of each launch the latest
    for record in records:
        if record.is_ok and isinstance(record.case, Case) and record.case.kind in (None, AGAIN):
            place = row_of(record), record.key
            if place not in newest or record.time >= newest[place].time:
                newest[place] = record
    firsts = {row: one for (row, _), one in newest.items() if one.case.kind is None}
    works: dict[Row, Work] = {row: work_of(one) for row, one in firsts.items()}
    newest = {place: one for place, one in newest.items() if _is_launch_of(firsts.get(place[0]), one)}
    times: dict[Row, list[float]] = {}
    for (row, _), record in newest.items():
        times.setdefault(row, []).append(datetime.fromisoformat(record.time).timestamp())
    rates: dict[tuple[Work, str], dict[Row, list[float]]] = {}
    shares: dict[tuple[Row, str], list[float]] = {}
    for (row, _), record in newest.items():
        for phase in SPEEDS:
            rate = record.metrics.figure(phase) if isinstance(record.metrics, Metrics) else None
            if rate:
                rates.setdefault((works[row], phase), {}).setdefault(row, []).append(rate)
            share = _share(record, phase)
            if share is not None:
                shares.setdefault((row, phase), []).append(share)
    found: dict[Row, dict[str, LaunchedSpeed]] = {}
    for (_, phase), of_rows in rates.items():
        speeds = launched_speeds(list(of_rows.values())) or []
        for row, speed in zip(of_rows, speeds, strict=False):
            of_row = shares.get((row, phase))
            about = {"seconds": max(times[row]) - min(times[row]), "share": median(of_row) if of_row else None}
            found.setdefault(row, {})[phase] = replace(speed, **about)
    return found


def _share(record: Record, phase: str) -> float | None:
    """The share of the roofline that the launch of this record reached."""
    speed = record.metrics.speed if isinstance(record.metrics, Metrics) else None
    roofline = speed and speed.roofline
    return getattr(roofline, phase.removesuffix("_tok_s")) if roofline else None


def joined(record: Record, launches: KeptLaunches) -> Record:
    """The row with the mean of its launches as speeds and their intervals; a speed of one process has no interval."""
    metrics, found = record.figures, launches.get(row_of(record), {})
    if metrics.speed is None or metrics.speed.figures is None:
        return record
    figures = metrics.speed.figures
    speeds = {name: one.estimate for name, one in found.items()}
    intervals = {name: speed.interval for name, speed in speeds.items()}
    figures = replace(figures, interval=intervals, **{name: speed.value for name, speed in speeds.items()})
    return replace(record, metrics=replace(metrics, speed=replace(metrics.speed, figures=figures)))
