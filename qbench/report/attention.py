"""Tables of attention implementations by context length: distance from textbook attention, speed and peak memory."""

import re
from collections.abc import Iterable, Sequence

from qbench.measure.quality_figures import Quality
from qbench.measure.records.record import Record
from qbench.report.caches import MISSING, megabytes, speed
from qbench.report.kinds import origin
from qbench.report.launches import OF_LAUNCHES
from qbench.report.recorded import recorded
from qbench.run.choices import ATTENTIONS, TEXTBOOK
from qbench.words.read import count, markdown_grid

HEADINGS = ("tokens", "attention")
WINDOWS = re.compile("windows-([1-9][0-9]{0,8})")  # the protocol whose number is a context length


def attention_markdown(records: Iterable[Record]) -> str:
    """A table per machine, threads, model, recipe and cache; "" if no record has chosen attention.

    records   the latest of each case of a sweep that was measured
    """
    groups: dict[tuple, list[Record]] = {}
    for record in records:
        case = record.model_case
        if case.attention is not None:
            about = (case.model, case.recipe, case.kv_format, str(case.cache_spec), case.compute, case.device)
            groups.setdefault((record.machine.id, case.threads, case.batch, *about), []).append(record)
    return "\n".join(map(_one_table, groups.values()))


def _one_table(records: Sequence[Record]) -> str:
    contexts = sorted({depth for record in records if (depth := _depth(record)) is not None} | _windows(records))
    chosen = [name for name in ATTENTIONS if any(record.model_case.attention == name for record in records)]
    rows = [_row(records, context, name) for context in contexts for name in chosen]
    work = next((record.model_case.speed for record in records if record.model_case.speed), None)
    pp, tg = (work.pp, work.tg) if work else (0, 0)
    head = [*HEADINGS, "max abs delta logit", "KLD mean", "KLD max", "same top %", f"pp{pp} tok/s [95 %]"]
    head += [f"tg{tg} tok/s [95 %]", "peak RSS MB", "above the empty process MB"]
    shown = [i for i in range(len(head)) if any(row[i] != MISSING for row in rows)]
    grid = markdown_grid([[line[i] for i in shown] for line in (head, *rows)], [head[i] != "attention" for i in shown])
    case, machine = records[0].model_case, records[0].machine
    title = f"{case.model} as {case.recipe}, compute {case.compute}, cache {case.cache_spec}, {case.kv_format}"
    threads = f"{count(recorded(case.threads), 'thread')} of {count(recorded(machine.cores), 'core')}"
    protocols = [quality.protocol for record in records for quality in _qualities(record).values()]
    windows = max((recorded(protocol).num_windows or 0 for protocol in protocols), default=0)
    over = f"Distances are from attention {TEXTBOOK}, over {count(windows, 'window')} of each length"
    note = "; ".join([over if windows else "No quality", threads, OF_LAUNCHES, origin(list(records))])
    return f"**Attention of {title}, on {machine.cpu}**\n\n{grid}\n\n{note}.\n"


def _depth(record: Record) -> int | None:
    return record.model_case.speed and record.model_case.speed.depth


def _windows(records: Sequence[Record]) -> set[int]:
    """The context lengths at which quality was measured."""
    named = (WINDOWS.fullmatch(name) for record in records for name in _qualities(record))
    return {int(found[1]) for found in named if found}


def _qualities(record: Record) -> dict[str, Quality]:
    """Protocol -> quality under it."""
    metrics = record.figures
    every = metrics.protocols.values() if metrics.protocols else filter(None, [metrics.quality])
    return {one.protocol.name: one for one in every if one.protocol and one.protocol.name}


def _row(records: Sequence[Record], context: int, name: str) -> list[str]:
    own = [record for record in records if record.model_case.attention == name]
    at = [record.figures for record in own if _depth(record) == context]
    found = filter(None, (_qualities(record).get(f"windows-{context}") for record in own))
    delta = next((quality.attention_delta for quality in found), None)
    if name == TEXTBOOK:
        quality = ["0", "0", "0", "100"]
    elif delta is None:
        quality = [MISSING] * 4
    else:
        figures = (delta.max_logit, delta.mean_kld, delta.max_kld)
        quality = [*(f"{recorded(value):.2e}" for value in figures), f"{100 * recorded(delta.same_top):.3f}"]
    speeds = [next(filter(None, map(speed(f"{phase}_tok_s"), at)), MISSING) for phase in ("pp", "tg")]
    peak = next(filter(None, map(megabytes("peak_rss_bytes"), at)), MISSING)
    since = [
        memory.peak_rss_bytes - memory.baseline_rss_bytes
        for memory in (metrics.memory for metrics in at)
        if memory and memory.peak_rss_bytes is not None and memory.baseline_rss_bytes is not None
    ]
    return [str(context), name, *quality, *speeds, peak, f"{since[0] / 1e6:.2f}" if since else MISSING]
