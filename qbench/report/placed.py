"""The table of records of `qbench plan --goal`: a decode step within a memory limit, predicted and measured by part."""

from qbench.measure.records.kept_placements import PlacementCase, PlacementMetrics
from qbench.measure.records.record import Record
from qbench.measure.step_time import StepTime
from qbench.report.speeds import Cells
from qbench.report.typed_rows import rows_of

MISSING = "n/a"
MEBI = 1 << 20
PLACED_NOTE = (
    "Each pair is predicted / measured; the last column is predicted over measured tokens per second. "
    "Computation includes the processor time of reads, and waits are for weights from the disk"
)
PARTS = ("step_s", "compute_s", "wait_s", "disk_s")


def placed_cells(records: list[Record]) -> Cells:
    """One row per plan."""
    heading = ["model", "KV", "limit MiB", "batch", "context", "goal", "read MB"]
    heading += ["step ms", "compute ms", "wait ms", "disk ms", "tok/s", "predicted / measured"]
    cells = []
    for case, found in rows_of(records, PlacementCase, PlacementMetrics):
        limit = MISSING if case.memory_bytes is None else f"{case.memory_bytes / MEBI:.0f}"
        about = [case.model, case.kv_format or "float32", limit, str(case.batch), str(case.context), str(case.goal)]
        figures = [_pair(found, "disk_bytes", 1e-6), *(_pair(found, part, 1e3) for part in PARTS)]
        rates = " / ".join(_number(rate, 2) for rate in (found.predicted_tok_s, found.measured_tok_s))
        cells.append([*about, *figures, rates, _number(found.ratio, 3)])
    return heading, cells, [False, False, True, True, True, False, *[True] * 7]


def _pair(found: PlacementMetrics, part: str, scale: float) -> str:
    return " / ".join(_number(_value(step, part, scale), 1) for step in (found.step, found.measured))


def _value(step: StepTime | None, part: str, scale: float) -> float | None:
    return None if step is None else getattr(step, part) * scale


def _number(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"
