"""The table of records of `qbench engine`: many requests at once, next to other ways to run them."""

from qbench.measure.records.kept_kinds import ServingFigures, ThroughputCase, ThroughputMetrics
from qbench.measure.records.record import Record
from qbench.report.ratios import judged_ratio
from qbench.report.recorded import recorded
from qbench.report.speeds import Cells
from qbench.report.typed_rows import rows_of


def serving_cells(records: list[Record]) -> Cells:
    """One row a contender of each workload; ratios are how many times as fast the engine is [range of the rounds]."""
    heading = ["model", "KV", "requests", "at once", "run by", "new tok/s", "computed", "first token s"]
    heading += ["engine is", "same text"]
    cells = []
    for case, metrics in rows_of(records, ThroughputCase, ThroughputMetrics):
        about = [case.model.rpartition("/")[2], case.kv_format or "float32", str(case.workload), str(case.batch)]
        for name, figures in recorded(metrics.contenders).items():
            cells.append([*about, name, *contender_figures(figures)])
    return heading, cells, [False, False, False, True, False, True, True, True, True, True]


def contender_figures(figures: ServingFigures) -> list[str]:
    ends = (figures.ratio.min, figures.ratio.max) if len(figures.samples) > 1 else (None, None)
    ratio = judged_ratio(recorded(figures.ratio.median), *ends, "x")
    shown = [f"{figures.tok_s:.1f}", str(figures.computed), f"{figures.ttft_ms / 1e3:.2f}"]
    return [*shown, ratio, f"{100 * figures.same_text:.0f} %"]
