"""The table of records of `qbench plan`: memory by part from a config alone, and the peak if one was measured."""

from qbench.measure.records.kept_kinds import PlanCase, PlanMetrics
from qbench.measure.records.record import Record
from qbench.report.speeds import Cells
from qbench.report.typed_rows import rows_of

MISSING = "n/a"


def planned_cells(records: list[Record]) -> Cells:
    """One row a plan; figures of memory in GB, and how much of the measured peak was predicted."""
    heading = ["model", "recipe", "KV", "cache", "policy", "context", "batch"]
    heading += ["weights GB", "KV GB", "workspace GB", "total GB", "fits"]
    heading += ["predicted peak GB", "measured GB", "predicted / measured"]
    cells = []
    for case, found in rows_of(records, PlanCase, PlanMetrics):
        about = [case.model, case.recipe or "as stored", case.kv_format or "float32"]
        about += [str(case.cache), str(case.policy)]
        parts = map(gigabytes, (found.resident_bytes, found.kv_bytes, found.workspace_bytes, found.total_bytes))
        peaks = map(gigabytes, (found.predicted_peak_bytes, found.peak_rss_bytes))
        ratio = MISSING if found.ratio is None else f"{found.ratio:.3f}"
        cells.append([*about, str(case.context), str(case.batch), *parts, fits(found), *peaks, ratio])
    return heading, cells, [False] * 5 + [True] * 6 + [False] + [True] * 3


def gigabytes(size: float | None) -> str:
    return MISSING if size is None else f"{size / 1e9:.3f}"


def fits(metrics: PlanMetrics) -> str:
    """ "in 24.0 GB", "not in 24.0 GB"; nothing was asked: n/a"""
    if metrics.fits is None or metrics.memory_bytes is None:
        return MISSING
    return f"{'' if metrics.fits else 'not '}in {metrics.memory_bytes / 1e9:.1f} GB"
