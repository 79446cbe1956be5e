"""The tables of records of `qbench breakeven`: one table per question and model, one row per alternative and size."""

from qbench.measure.records.kept_placements import BreakevenCase, BreakevenMetrics, BreakevenPoint
from qbench.measure.records.record import Record
from qbench.report.speeds import Cells
from qbench.report.typed_rows import rows_of

MISSING = "n/a"
BREAKEVEN_NOTE = "Speed is the alternative's over the default's, with a 95 % interval; `on` if the interval is above 1"


def asked(record: Record) -> str:
    """The question, the model and the size that decides: the name of a table."""
    ((case, found),) = rows_of([record], BreakevenCase, BreakevenMetrics)
    parts = [f"`--what {case.question}` by {found.axis}", case.model, case.recipe or "as stored"]
    parts += [] if case.kv_format is None else [f"KV cache in {case.kv_format}"]
    parts += [] if case.layers is None else [f"the first {case.layers} layers"]
    return ", ".join(parts) + ":"


def breakeven_cells(records: list[Record]) -> Cells:
    """One row per alternative and size; its last row has the size from which the alternative pays."""
    heading = ["alternative", "size", "setting", "speed", "verdict", "pays from"]
    cells = []
    for case, found in rows_of(records, BreakevenCase, BreakevenMetrics):
        for number, point in enumerate(found.points):
            is_last = number + 1 == len(found.points)
            pays = pays_text(found, point) if is_last else ""
            about = [case.alternative, str(point.size), point.choice or MISSING]
            cells.append([*about, speed_text(point), verdict_of(point), pays])
    return heading, cells, [False, True, False, True, False, True]


def pays_text(found: BreakevenMetrics, last: BreakevenPoint) -> str:
    """A question with verdicts of its own, such as offload, has no size from which it pays."""
    return MISSING if last.says is not None else str(found.pays_from or "off")


def conclusions(records: list[Record]) -> list[str]:
    """Answers in words, for questions whose sizes that pay do not say it"""
    return [found.conclusion for _, found in rows_of(records, BreakevenCase, BreakevenMetrics) if found.conclusion]


def speed_text(point: BreakevenPoint) -> str:
    if point.ratio is None:
        return MISSING
    ends = "" if point.low is None or point.high is None else f" [{point.low:.3f}, {point.high:.3f}]"
    return f"{point.ratio:.3f}{ends}"


def verdict_of(point: BreakevenPoint) -> str:
    return point.says or ("on" if point.low is not None and point.low > 1 else "off")
