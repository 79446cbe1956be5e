"""One table of kinds of caches in several formats: cost of each in quality, recall, speed and memory.

A sweep measures quality once and speed at every depth, so that the figures of one cache are in several records: here
they are one row, and models are below each other.
"""

from collections.abc import Callable, Iterable, Sequence

from qbench.measure.metrics import Metrics
from qbench.measure.records.record import Record
from qbench.report.extra_columns import SHARES
from qbench.report.kinds import origin
from qbench.report.launches import OF_LAUNCHES, speed_text
from qbench.report.recorded import recorded
from qbench.run.case import Case
from qbench.words.read import count, markdown_grid

MISSING = "n/a"
# Tokens before the predicted one, at which divergence is split: the windows of suites/caches.yaml end there.
CUTS = (1, 64, 256)
AXES = (
    "model",
    "recipe",
    "cache",
    "policy",
    "prefill_chunk",
    "kv_format",
)  # fields of the case that all records of a row share


def caches_markdown(records: Iterable[Record]) -> str:
    """A table for each machine and number of threads; "" without records.

    records   the latest of each case of a sweep that was measured
    """
    groups: dict[tuple[str, int | None], list[Record]] = {}
    for record in records:
        groups.setdefault((record.machine.id, record.model_case.threads), []).append(record)
    return "\n".join(map(one_table, groups.values()))


def one_table(records: Sequence[Record]) -> str:
    rows: dict[tuple[str | int | None, ...], list[Record]] = {}
    for record in records:
        rows.setdefault(key_of(record.model_case), []).append(record)
    columns = columns_of(records)
    if all(record.model_case.prefill_chunk is None for record in records):
        columns = [column for column in columns if column[0] != "prefill chunk"]
    cells = [[of_row(found) for _, of_row in columns] for found in rows.values()]
    shown = [i for i in range(len(columns)) if any(line[i] != MISSING for line in cells)]
    grid = markdown_grid(
        [[columns[i][0] for i in shown], *([line[i] for i in shown] for line in cells)],
        [columns[i][0] not in HEADINGS for i in shown],
    )
    machine = records[0].machine
    threads = f"{count(recorded(records[0].model_case.threads), 'thread')} of {count(recorded(machine.cores), 'core')}"
    note = "; ".join([protocols_of(records), threads, OF_LAUNCHES, origin(list(records))])
    return f"**Caches on {machine.cpu}**\n\n{grid}\n\n{note}.\n"


def key_of(case: Case) -> tuple[str | int | None, ...]:
    return tuple(getattr(case, name) for name in AXES)


HEADINGS = ("model", "recipe", "cache", "policy", "prefill chunk", "KV")
Column = tuple[str, Callable[[list[Record]], str]]  # its heading, and a row's text
Figure = Callable[[Metrics], str | None]  # of one record; None if it was not measured


def columns_of(records: Sequence[Record]) -> list[Column]:
    about = [(heading, axis(i)) for i, heading in enumerate(HEADINGS)]
    tasks = dict.fromkeys(name for record in records for name in record.figures.tasks or ())
    depths = sorted({work.depth for record in records if (work := record.model_case.speed)})
    quality = [("mean KLD [95 %]", first_of(mean_kld))]
    quality += [
        (f"KLD {span(*ends)}", first_of(kld_between(*ends))) for ends in zip(CUTS, (*CUTS[1:], None), strict=True)
    ]
    quality += [("same top %", first_of(lambda metrics: percent(metrics.figure("same_top"))))]
    quality += [(f"{name} %", first_of(task_share(name))) for name in tasks]
    speeds = [column for depth in depths for column in speed_columns(records, depth)]
    return [*about, *quality, *speeds, ("peak RSS MB", peak)]


def axis(place: int) -> Callable[[list[Record]], str]:
    nothing = "all" if AXES[place] == "prefill_chunk" else "as stored"
    return lambda found: str(key_of(found[0].model_case)[place] or nothing)


def first_of(figure: Figure) -> Callable[[list[Record]], str]:
    """The first of the row's records that has it: quality is measured in one of them."""
    return lambda found: next(filter(None, (figure(record.figures) for record in found)), MISSING)


def mean_kld(metrics: Metrics) -> str | None:
    quality = metrics.quality
    if quality is None or quality.mean_kld is None:
        return None
    ends = quality.kld_interval
    return f"{quality.mean_kld:.2e}" + (f" [{ends[0]:.2e}, {ends[1]:.2e}]" if ends else "")


def kld_between(low: int, high: int | None) -> Figure:
    """The mean over tokens with so many before them, from the bins of powers of two that records keep."""

    def of(metrics: Metrics) -> str | None:
        every = (metrics.quality and metrics.quality.kld_by_position) or ()
        bins = [part for part in every if part.low >= low and (high is None or part.low < high)]
        count = sum(part.count for part in bins)
        return f"{sum(part.mean * part.count for part in bins) / count:.2e}" if count else None

    return of


def span(low: int, high: int | None) -> str:
    """ "to 64", "64 to 256", "from 256" """
    if high is None:
        return f"from {low}"
    return f"to {high}" if low == CUTS[0] else f"{low} to {high}"


def percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.2f}"


def task_share(name: str) -> Figure:
    def of(metrics: Metrics) -> str | None:
        entry = (metrics.tasks or {}).get(name)
        return percent(entry.value) if entry and entry.metric in SHARES else None

    return of


def speed_columns(records: Sequence[Record], depth: int) -> list[Column]:
    """Prefill, decode and the bytes that the cache takes, of the records at this depth."""

    def at_depth(text: Figure) -> Callable[[list[Record]], str]:
        one = first_of(text)
        return lambda found: one([record for record in found if depth_of(record) == depth])

    work = recorded(next(record.model_case.speed for record in records if depth_of(record) == depth))
    at = f"@{depth}" if depth else ""
    phases = [
        (f"{name}{getattr(work, name)}{at} tok/s [95 %]", at_depth(speed(f"{name}_tok_s"))) for name in ("pp", "tg")
    ]
    sizes = [("cache MB", "kv_bytes_held"), ("cache peak MB", "kv_peak_bytes")]
    return [*phases, *((f"{heading}{at}", at_depth(megabytes(name))) for heading, name in sizes)]


def depth_of(record: Record) -> int | None:
    """None if no speed was measured."""
    work = record.model_case.speed
    return work and work.depth


def speed(name: str) -> Figure:
    return lambda metrics: speed_text(metrics, name)


def megabytes(name: str) -> Figure:
    def of(metrics: Metrics) -> str | None:
        size = metrics.figure(name)
        return None if size is None else f"{size / 1e6:.2f}"

    return of


def peak(found: list[Record]) -> str:
    """The most that any of the row's processes held."""
    every = (record.figures.figure("peak_rss_bytes") for record in found)
    sizes = [size for size in every if size is not None]
    return f"{max(sizes) / 1e6:.0f}" if sizes else MISSING


def protocols_of(records: Sequence[Record]) -> str:
    found = (record.figures.quality for record in records)
    protocols = [quality.protocol for quality in found if quality and quality.protocol]
    names = dict.fromkeys(f"{protocol.name} ({protocol.hash})" for protocol in protocols)
    return "protocol " + ", ".join(names) if names else "no quality"
