"""The noise floor of speeds: how far the same case lies from itself, measured twice in one sweep."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from qbench.compare.comparison import ABOVE_FLOOR, ONE_LAUNCH, SPEEDS
from qbench.measure.case import Case, SpeedWork
from qbench.measure.metrics import Metrics
from qbench.measure.records.kinds import AGAIN
from qbench.measure.records.record import Record
from qbench.statistics import Cell
from qbench.statistics.estimate import ALPHA
from qbench.store import latest_records
from qbench.store.load import files_with

LEAST = 4  # pairs: Student's t of fewer degrees asks for more than three times their spread


@dataclass(frozen=True, slots=True)
class Work:
    """What a speed was measured at; None for a value that a row does not have."""

    machine: str
    threads: int | None
    batch: int | None
    pp: int | None
    tg: int | None
    depth: int | None


SpeedFloors = Mapping[Work, Mapping[str, float]]


def work_of(record: Record) -> Work:
    """The work of a model's row. A model that `compare` measured itself has neither threads nor speeds."""
    case = record.model_case
    work = case.speed or SpeedWork(lacks=frozenset({"pp", "tg", "depth"}))
    pp, tg, depth = (None if name in work.lacks else getattr(work, name) for name in ("pp", "tg", "depth"))
    return Work(record.machine.id, case.threads, None if "batch" in case.lacks else case.batch, pp, tg, depth)


def kept_speed_floors(paths: Sequence[str]) -> SpeedFloors:
    """work -> phase -> floor, a share of the speed; of work that enough cases were measured at twice by one code.

    Logarithms of the ratios of two times are taken to lie around 0 with one spread, estimated from n of them: one more
    would lie within t spreads in 95 % of cases, t of n degrees.
    """
    logs: dict[Work, dict[str, list[float]]] = {}
    if not files_with(paths, (AGAIN,)):
        return {}  # most records hold none, and need not be read for it
    found = latest_records(paths, kinds=(None, AGAIN))
    for (_, machine), record in found.items():
        if not isinstance(record.case, Case) or record.case.kind != AGAIN:
            continue
        first = found.get((record.case.of or "", machine))
        if first is None or first.code != record.code:
            continue
        for phase in SPEEDS:
            rates = [_rate(row, phase) for row in (first, record)]
            if rates[0] and rates[1]:
                log = math.log(rates[1] / rates[0])
                logs.setdefault(work_of(record), {}).setdefault(phase, []).append(log)
    floors = {work: {phase: _floor(of) for phase, of in by.items() if len(of) >= LEAST} for work, by in logs.items()}
    return {work: by for work, by in floors.items() if by}


def _rate(record: Record, phase: str) -> float | None:
    return record.metrics.figure(phase) if isinstance(record.metrics, Metrics) else None


def _floor(logs: Sequence[float]) -> float:
    from scipy.special import stdtrit  # here, since most records hold no speed that was measured twice

    spread = math.sqrt(sum(value**2 for value in logs) / len(logs))
    return math.expm1(float(stdtrit(len(logs), 1 - ALPHA / 2)) * spread)


def with_speed_floors(cells: Sequence[Cell], floors: Mapping[str, float]) -> list[Cell]:
    """The cells of speeds with the floors of their work, which also allow a verdict; others as they are."""
    return [_with_floor(cell, floors[cell.metric]) if cell.metric in floors else cell for cell in cells]


def _with_floor(cell: Cell, floor: float) -> Cell:
    if cell.note == ONE_LAUNCH:
        cell = replace(cell, note=ABOVE_FLOOR, is_tested=True)
    return replace(cell, floor=floor)
