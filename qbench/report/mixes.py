"""One table of mixes: weights, KV format, policy and context, with their bytes, divergence and decode speed."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qbench.comparison.kept_launches import KeptLaunches, row_of
from qbench.measure.quality_figures import Quality
from qbench.measure.records.record import Record
from qbench.report.kinds import origin
from qbench.report.launches import OF_LAUNCHES, launches_text, speed_text
from qbench.report.policies import MARKS, MISSING, mean_kld_text, megabytes, speed_ratio, work_text
from qbench.report.policy_rows import PolicyRow, setting
from qbench.report.recorded import RULE, recorded
from qbench.report.table import pareto_front
from qbench.statistics.paired import kld_ratio
from qbench.words.read import count, markdown_grid

NUM_TEXTS = 6  # Pareto mark, row, context, recipe, KV format and policy; the other columns are numbers


@dataclass(frozen=True, slots=True)
class Mix:
    """One mix at one context: its quality on windows of that many tokens, and its speed with as many tokens held."""

    context: int
    row: PolicyRow

    @property
    def num_bytes(self) -> float:
        """Weights and cache; NaN if either is unknown."""
        weights, held = self.row.metrics.figure("size_bytes"), self.row.speed.kv_bytes_held
        return float("nan") if weights is None or held is None else float(weights + held)

    @property
    def mean_kld(self) -> float:
        return recorded(self.row.mean_kld)


def mixes_markdown(records: Iterable[Record], launches: KeptLaunches | None = None) -> str:
    """One table per model and machine, sorted by context and bytes; "" without a mix of which both are measured.

    records    the latest of each case of a sweep that was measured
    launches   of the same records
    """
    groups: dict[tuple[object, ...], list[Mix]] = {}
    for mix in mixes(records):
        groups.setdefault((*setting(mix.row.judged), mix.row.metrics.reference), []).append(mix)
    return "\n".join(_table(sorted(rows, key=_order), launches or {}) for rows in groups.values())


def mixes(records: Iterable[Record]) -> list[Mix]:
    """Every mix and context with a divergence on windows of that length and a speed that ends at that length."""
    judged: dict[tuple[object, ...], Record] = {}
    timed: dict[tuple[object, ...], Record] = {}
    for record in records:
        case = record.model_case
        mix = (*setting(record), case.recipe, case.kv_format, case.cache, case.prefill_chunk, case.policy)
        for quality in _qualities(record):
            if quality.mean_kld is not None and quality.protocol and quality.protocol.window:
                judged[*mix, quality.protocol.window] = _judged(record, quality)
        if case.speed and case.context:
            timed[*mix, case.context] = record
    return [Mix(int(str(key[-1])), PolicyRow(judged[key], timed[key], {})) for key in judged if key in timed]


def _qualities(record: Record) -> Sequence[Quality]:
    metrics = record.figures
    return list(metrics.protocols.values()) if metrics.protocols else [metrics.quality] if metrics.quality else []


def _judged(record: Record, quality: Quality) -> Record:
    """The record with the quality of one of its protocols alone."""
    return replace(record, metrics=replace(record.figures, quality=quality, protocols=None))


def _order(mix: Mix) -> tuple[int, bool, float]:
    return mix.context, np.isnan(mix.num_bytes), mix.num_bytes


def _table(rows: Sequence[Mix], launches: KeptLaunches) -> str:
    marks = _marks(rows)
    heading = [
        "Pareto", "row", "context", "weights", "KV", "policy", "weights MB", "cache MB", "both MB", "mean KLD [95 %]",
        "KLD over the best as small [95 %]", f"{_work(rows)} tok/s [95 %]", "speed / largest [95 %]",
    ]  # fmt: skip
    lines = [heading]
    for i, mix in enumerate(rows):
        row, largest = mix.row, _largest(rows, mix.context)
        lines.append(
            [
                MARKS[marks[i]],
                str(i + 1),
                str(mix.context),
                row.case.recipe or "as stored",
                row.case.kv_format or "f32",
                row.case.policy,
                megabytes(row.metrics.figure("size_bytes")),
                megabytes(row.speed.kv_bytes_held),
                megabytes(None if np.isnan(mix.num_bytes) else mix.num_bytes),
                mean_kld_text(row),
                _over_best(rows, i),
                speed_text(row.timed.figures, "tg_tok_s") or MISSING,
                speed_ratio(rows[largest].row, row, launches),
            ]
        )
    first = rows[0].row
    title = f"**{first.case.model} on {first.judged.machine.cpu}: weights x KV format x policy x context**"
    grid = markdown_grid(lines, [k >= NUM_TEXTS for k in range(len(heading))])
    return f"{title}\n\n{grid}\n\n{_footer(rows, launches)}"


def _marks(rows: Sequence[Mix]) -> list[tuple[bool, bool]]:
    """Per row: whether it is a Pareto point of (mean KLD, bytes), and of (mean KLD, speed), in its context."""
    found = [(False, False)] * len(rows)
    for context in dict.fromkeys(mix.context for mix in rows):
        places = [i for i, mix in enumerate(rows) if mix.context == context]
        kld = [rows[i].mean_kld for i in places]
        slowness = [-(rows[i].row.speed.tg_tok_s or float("nan")) for i in places]
        fronts = [pareto_front(np.array([kld, cost]).T) for cost in ([rows[i].num_bytes for i in places], slowness)]
        for i, by_bytes, by_speed in zip(places, *fronts, strict=True):
            found[i] = bool(by_bytes), bool(by_speed)
    return found


def _largest(rows: Sequence[Mix], context: int) -> int:
    """The row of most bytes at that context."""
    return max(
        (i for i, mix in enumerate(rows) if mix.context == context), key=lambda i: np.nan_to_num(rows[i].num_bytes)
    )


def _over_best(rows: Sequence[Mix], i: int) -> str:
    """ "best", or "2.31 [1.90, 2.80] of row 4": the mean KLD over the least of any row of at most as many bytes"""
    mix = rows[i]
    smaller = [k for k, other in enumerate(rows) if other.context == mix.context and other.num_bytes <= mix.num_bytes]
    if not smaller:
        return MISSING
    best = min(smaller, key=lambda k: rows[k].mean_kld)
    if best == i:
        return "best"
    ours, theirs = (recorded(rows[k].row.quality).blocks for k in (i, best))
    if ours is None or theirs is None or ours.kld is None or theirs.kld is None:
        return f"{mix.mean_kld / rows[best].mean_kld:.3g} of row {best + 1}"
    ratio = kld_ratio(theirs, ours)
    interval = ratio.printed_interval(len(recorded(ours.tokens)), bound=0.0)
    ends = "" if interval is None else " [{:.3g}, {:.3g}]".format(*interval)
    return f"{ratio.value:.3g}{ends} of row {best + 1}"


def _work(rows: Sequence[Mix]) -> str:
    """ "tg32" """
    return work_text([mix.row for mix in rows]).partition("@")[0]


def _footer(rows: Sequence[Mix], launches: KeptLaunches) -> str:
    case, machine = rows[0].row.case, rows[0].row.judged.machine
    protocols = [recorded(recorded(mix.row.quality).protocol) for mix in rows]
    parts = list(dict.fromkeys(f"protocol {protocol.name} ({protocol.hash})" for protocol in protocols))
    parts += [f"prompts in chunks of {case.prefill_chunk}"] if case.prefill_chunk else []
    parts += [f"{count(case.threads or 1, 'thread')} of {count(machine.cores or 1, 'core')}"]
    speeds = [speed for mix in rows if (speed := launches.get(row_of(mix.row.timed), {}).get("tg_tok_s"))]
    if speeds:
        spreads = {"tg": [speed.error * math.sqrt(speed.num_launches) for speed in speeds]}
        parts += [launches_text([one.num_launches for one in speeds], [one.seconds or 0 for one in speeds], spreads)]
    told = (
        "Pareto bytes: no other row of its context has a lower mean KLD with fewer bytes of weights and cache. Pareto "
        'speed: no other row of its context has a lower mean KLD at a higher decode speed. "Best as small": the row '
        "of the lowest mean KLD among those of the same context with at most as many bytes; the ratio to it is paired "
        "by window of text, and its interval counts no choice among rows. Largest: the row of most bytes of a context. "
        f"Speeds: {OF_LAUNCHES}; {RULE}."
    )
    of_both = [record for mix in rows for record in (mix.row.judged, mix.row.timed)]
    return f"{told}\n\n{'; '.join([*parts, origin(of_both)])}.\n"
