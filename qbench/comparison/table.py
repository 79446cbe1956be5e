"""Judged comparisons as a table: one pair metric by metric, or several side by side, with notes for the reader."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qbench.comparison import text
from qbench.comparison.comparison import Comparison
from qbench.comparison.side import identity, value_of
from qbench.measure.records.record import Record
from qbench.run.case import Case
from qbench.run.work import SpeedWork
from qbench.statistics.cell import Cell
from qbench.statistics.verdict import POWER
from qbench.words.read import count, markdown_grid

# Keys of a case that distinguish rows for a reader, in this order.
LABELS = (
    *("model", "recipe", "kv_format", "cache", "policy", "prefill_chunk", "attention", "prefill", "kv_ram"),
    *("compute", "isa", "device", "division", "memory", "threads", "context", "batch"),
)
FLOORED = ("perplexity", "kld")


@dataclass(frozen=True, slots=True)
class Grid:
    """headings [C]; rows of C cells; which columns are numbers; notes below, a line each"""

    headings: list[str]
    rows: list[list[str]]
    numeric: list[bool]
    notes: list[str]

    def markdown(self) -> str:
        return markdown_grid([self.headings, *self.rows], self.numeric) + "\n\n" + "\n".join(self.notes) + "\n"


def make_grid(comparisons: Sequence[Comparison], *, long: bool = False) -> Grid:
    """One pair or `long`: a row a metric. Else a row a pair, and each cell with its verdict and interval."""
    if len(comparisons) == 1 or long:
        return _long(comparisons)
    return _wide(comparisons)


def _long(comparisons: Sequence[Comparison]) -> Grid:
    headings = ["metric", "A", "B", "change, B against A [95 %]", "verdict", "p (Holm)", "noise floor", "detectable"]
    headings.append("decided by")
    rows = [[label, *_metric_row(cell)] for label, cell in _labelled(comparisons)]
    numeric = [False, False, True, True, True, False, True, True, True, True]
    if len(comparisons) == 1:
        rows, numeric = [row[1:] for row in rows], numeric[1:]
    else:
        headings = ["B", *headings]
    return Grid(headings, rows, numeric, _notes(comparisons))


def _labelled(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, Cell]]:
    for label, comparison in zip(labels(comparisons), comparisons, strict=True):
        for cell in comparison.cells:
            yield label, cell


def _metric_row(cell: Cell) -> list[str]:
    return [
        text.heading(cell.metric),
        text.value(cell, cell.a),
        text.value(cell, cell.b),
        text.change(cell) + text.flips(cell),
        text.verdict(cell),
        "exact" if cell.exact else text.probability(cell.holm_p_value),
        "exact" if cell.exact else text.distance(cell, cell.floor),
        text.distance(cell, cell.detectable) if cell.verdict == "same" and not cell.exact else "",
        text.needed(cell),
    ]


def _wide(comparisons: Sequence[Comparison]) -> Grid:
    cells = [cell for comparison in comparisons for cell in comparison.cells]
    # A column of bytes that are the same throughout says nothing.
    metrics = list(dict.fromkeys(cell.metric for cell in cells if not cell.exact or cell.verdict != "same"))
    headings = ["B"] + [_heading_with_floor(metric, comparisons) for metric in metrics]
    rows = []
    for label, comparison in zip(labels(comparisons), comparisons, strict=True):
        cells = {cell.metric: cell for cell in comparison.cells}
        rows.append([label] + [_short(cells[metric]) if metric in cells else text.MISSING for metric in metrics])
    return Grid(headings, rows, [False] * len(headings), _notes(comparisons))


def _heading_with_floor(metric: str, comparisons: Sequence[Comparison]) -> str:
    """The floor too if all rows share one: rows of several models have several."""
    cells = [cell for comparison in comparisons for cell in comparison.cells if cell.metric == metric]
    floors = {cell.floor for cell in cells}
    if len(floors) > 1 or None in floors:
        return text.heading(metric)
    return f"{text.heading(metric)} (noise floor {text.distance(cells[0], cells[0].floor)})"


def _short(cell: Cell) -> str:
    """ "worse +1.23 % [+1.02, +1.44]", and for "same" the reason, or the smallest change that would be found."""
    words = f"{cell.verdict or text.MISSING} {text.change(cell)}{text.flips(cell)}"
    if cell.is_within_floor:
        return f"{words}; within the noise floor"
    if cell.verdict == "same" and not cell.exact:
        more = text.needed(cell)
        return f"{words}; would find {text.distance(cell, cell.detectable)}" + (
            f", {more} would decide" if more else ""
        )
    return words


def labels(comparisons: Sequence[Comparison]) -> list[str]:
    """Label that distinguishes each B from the others, or a single B from its A."""
    others = [comparison.b for comparison in comparisons]
    if len(others) == 1:
        others.append(comparisons[0].a)
    keys = [key for key in LABELS if len({str(value_of(row, key)) for row in others}) > 1] or ["recipe"]
    return [", ".join(_told(comparison.b, key) for key in keys) for comparison in comparisons]


def _told(record: Record, key: str) -> str:
    value = value_of(record, key)
    return f"{key} {value}" if key in ("threads", "context", "batch") else str(value or "as stored")


def _notes(comparisons: Sequence[Comparison]) -> list[str]:
    """Name of A, basis of the verdicts, and each remark once."""
    bases = list({identity(c.a): c.a for c in comparisons}.values())
    notes = ["A: " + "; ".join(_origin(record) for record in bases) + "."]
    if len(comparisons) == 1:
        notes.append(f"B: {_origin(comparisons[0].b)}.")
    cells = [cell for comparison in comparisons for cell in comparison.cells]
    tested = sum(cell.holm_p_value is not None for cell in cells)
    if tested:
        notes.append(
            f"Verdicts: p < 0.05 among all {tested} tests of this table (Holm), and beyond the noise floor; intervals "
            f'are 95 % each. Next to "same": the difference that would be found in {100 * POWER:.0f} % of cases, '
            "and the number of blocks (windows or documents), items or launches that would decide the measured change."
        )
    remarks: dict[str, list[str]] = {}
    for cell in cells:
        if cell.note:
            remarks.setdefault(cell.note, []).append(text.heading(cell.metric))
    notes += [f"{', '.join(dict.fromkeys(metrics))}: {note}." for note, metrics in remarks.items()]
    names = labels(comparisons)
    for left_out in dict.fromkeys(why for comparison in comparisons for why in comparison.left_out):
        of = [name for name, comparison in zip(names, comparisons, strict=True) if left_out in comparison.left_out]
        notes.append(f"Not compared{'' if len(comparisons) == 1 else ' (' + ', '.join(of) + ')'}: {left_out}.")
    if any(cell.kind_of_metric in FLOORED and cell.floor is None for cell in cells):
        notes.append("Noise floor: n/a until `qbench compare MODEL --noise-floor --keep RECORDS` measures it.")
    return notes


def _origin(record: Record) -> str:
    """Model, recipe, protocol, machine and commit of a row."""
    case, quality, commit = record.model_case, record.figures.quality, record.commit
    protocol = quality and quality.protocol
    parts = [f"{case.model} {case.recipe or 'as stored'}"]
    parts += [f"protocol {protocol.name} ({(protocol.hash or '')[:12]})"] if protocol else []
    parts += [_work(case, case.speed)] if case.speed else []
    parts.append(f"machine {record.machine.id}")
    parts.append(f"commit {commit[:10]}{'+changes' if record.dirty else ''}" if commit else "commit unknown")
    return ", ".join(parts)


def _work(case: Case, work: SpeedWork) -> str:
    """ "pp512 and tg128 at depth 0, 2 threads": conditions of the speeds."""
    phases = " and ".join(
        f"{phase}{getattr(work, phase)}" for phase in ("pp", "tg") if phase not in work.lacks and getattr(work, phase)
    )
    return f"{phases} at depth {work.depth}, {count(case.threads or 1, 'thread')}"
