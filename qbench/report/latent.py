"""The table of records of `qbench mla`: each way to attend by latent attention, per new tokens, held tokens, batch."""

from qbench.measure.records.kept_kinds import LatentCase, LatentMetrics
from qbench.measure.records.record import Record
from qbench.report.recorded import recorded
from qbench.report.speeds import Cells
from qbench.report.typed_rows import rows_of


def latent_cells(records: list[Record]) -> Cells:
    """One row per mode of each case; * marks the choice of the runtime."""
    heading = ["new", "held", "batch", "mode", "cache B/token", "Mflop/token", "ms [range]", "memory MB"]
    cells = []
    rows = rows_of(records, LatentCase, LatentMetrics)
    for case, metrics in sorted(rows, key=lambda row: (row[0].tokens, row[0].context, row[0].batch)):
        samples = recorded(metrics.samples_ms)
        cells.append(
            [
                *map(str, (case.tokens, case.context, case.batch)),
                case.mode + (" *" if metrics.picked else ""),
                f"{metrics.kv_bytes_per_token:.0f}",
                f"{metrics.flop_per_token / 1e6:.1f}",
                f"{metrics.ms:.3f} [{min(samples):.3f}, {max(samples):.3f}]",
                f"{metrics.peak_bytes / 1e6:.1f}",
            ]
        )
    return heading, cells, [True, True, True, False, True, True, True, True]
