"""Cells of the tables of `qbench mla`, `engine`, `plan` and `breakeven`, and of `compare_offload.py`."""

from statistics import median

from qbench.measure.records.kept_kinds import (
    LatentCase,
    LatentMetrics,
    PlanCase,
    PlanMetrics,
    ServingFigures,
    ThroughputCase,
    ThroughputMetrics,
)
from qbench.measure.records.kept_placements import (
    BreakevenCase,
    BreakevenMetrics,
    BreakevenPoint,
    PeerCase,
    PeerMetrics,
)
from qbench.measure.records.record import Record
from qbench.report.recorded import judged_ratio, recorded, rows_of
from qbench.report.speeds import Cells

MISSING = "n/a"
MEBI = 1 << 20


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
