"""The table of records of `compare_offload.py`: a decode step of qbench and of another program within one limit."""

from statistics import median

from qbench.measure.records.kept_placements import PeerCase, PeerMetrics
from qbench.measure.records.record import Record
from qbench.report.speeds import Cells
from qbench.report.typed_rows import rows_of

MISSING, MEBI = "n/a", 1 << 20
PEERS_NOTE = (
    "The limit is the system's and counts the page cache; the programs take turns. `disk s`: the time of a step if the "
    "disk alone took time. `most`: the other program's step over that, the largest ratio that disk and limit allow"
)


def peers_cells(records: list[Record]) -> Cells:
    """One row per model and program."""
    heading = ["model", "program", "limit MiB", "batch", "read MB", "qbench s", "program s", "disk s", "ratio", "most"]
    cells = []
    for case, found in rows_of(records, PeerCase, PeerMetrics):
        sizes = [_number(case.memory_bytes, 1 / MEBI, 0), str(case.batch), _number(found.read_bytes, 1e-6, 1)]
        turns = (found.qbench_s, found.peer_s, found.disk_s)
        seconds = [_number(median(each) if each else None, 1, 3) for each in turns]
        ratios = [_number(value, 1, 2) for value in (found.times_as_fast, found.most_times_as_fast)]
        cells.append([case.model, case.peer, *sizes, *seconds, *ratios])
    return heading, cells, [False, False, *[True] * 8]


def _number(value: float | None, scale: float, digits: int) -> str:
    return MISSING if value is None else f"{value * scale:.{digits}f}"
