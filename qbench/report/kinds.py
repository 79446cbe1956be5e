"""Tables of records of other commands than `sweep`, one row of KINDS per kind of record."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby

from qbench.measure.host.machine import processors_text
from qbench.measure.records.kept_kinds import KernelMetrics, VersusMetrics
from qbench.measure.records.record import Record
from qbench.report.kind_cells import (
    BREAKEVEN_NOTE,
    PEERS_NOTE,
    asked,
    breakeven_cells,
    conclusions,
    latent_cells,
    peers_cells,
    planned_cells,
    serving_cells,
)
from qbench.report.placed_cells import PLACED_NOTE, RANKS_NOTE, SEARCH_NOTE, placed_cells, ranks_cells, search_cells
from qbench.report.speeds import KERNEL_NOTE, VERSUS_NOTE, Cells, builds, family, kernel_cells, versus_cells
from qbench.words.read import count, markdown_grid, short_commit, units_notes


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of record.

    cells    of the rows of one table
    shared   fields of a case that all rows of a table have in common, like the machine
    note     meaning of the columns, below each table
    part     another key that divides the rows into tables, each with that name
    says     lines below each of these tables
    is_run   one command measures all rows of a table again: those of other code than its newest row's are not shown
    """

    title: str
    cells: Callable[[list[Record]], Cells]
    shared: tuple[str, ...] = ("threads", "clock")
    note: str = ""
    part: Callable[[Record], str] = lambda record: ""
    is_run: bool = False
    says: Callable[[list[Record]], list[str]] = lambda records: []


OF_LATENTS = ("model", "kv_format", "threads", "clock")
FORCEABLE = ("threads", "clock", "forced")
# `kind` of a record's case, as the command that keeps it says, in the order of their tables
KINDS = {
    "kernel": Kind("Kernels", kernel_cells, FORCEABLE, KERNEL_NOTE, family, is_run=True),
    "versus": Kind("The same files through llama.cpp", versus_cells, FORCEABLE, VERSUS_NOTE, says=builds),
    "throughput": Kind("Many requests at once", serving_cells),
    "mla": Kind("Modes of latent attention, one layer", latent_cells, ("model", "kv_format", "threads", "clock")),
    "plan": Kind("Memory by part, as planned", planned_cells, ()),
    "placement": Kind("Models within a memory limit, as planned and measured", placed_cells, ("threads",), PLACED_NOTE),
    "peer": Kind("Within a memory limit, next to other programs", peers_cells, ("threads",), PEERS_NOTE),
    "ranks": Kind("Several ranks against one", ranks_cells, ("threads",), RANKS_NOTE),
    "search": Kind("The best file for a size, against fixed recipes", search_cells, ("threads",), SEARCH_NOTE),
    "breakeven": Kind("When it pays", breakeven_cells, ("threads", "clock"), BREAKEVEN_NOTE, asked, says=conclusions),
}


def kinds_markdown(records: Iterable[Record]) -> str:
    """A table for each kind, machine and other shared keys; "" if there are no rows.

    records   the latest of each case, of KINDS
    """

    tables = []
    for (_, name, *_), group in groupby(sorted(of_newest_runs(records), key=table_of), key=table_of):
        rows, kind = list(group), KINDS[name]
        parts: dict[str, list[Record]] = {}
        for row in rows:
            parts.setdefault(kind.part(row), []).append(row)
        grids = []
        for part, of_part in parts.items():
            heading, cells, numeric = kind.cells(of_part)
            grids += [part] if part else []
            grids.append(markdown_grid([heading, *cells], numeric))
            grids += [f"{line}." for line in kind.says(of_part)]
        told = [kind.note, footer(rows, kind.shared)] if kind.note else [footer(rows, kind.shared)]
        tables.append("\n\n".join([f"**{title_of(rows[0])}**", *grids, *(f"{one}." for one in told)]))
    return "\n\n".join(tables) + "\n" if tables else ""


def table_of(record: Record) -> tuple[str, ...]:
    """Place of the kind, kind, machine and shared values: the same for all rows of a table"""
    kind = kind_of(record)
    shared = (str(getattr(record.case, name)) for name in KINDS[kind].shared)
    return (str(list(KINDS).index(kind)), kind, record.machine.id, *shared)


def title_of(record: Record) -> str:
    """ "Kernels on AMD EPYC, QBENCH_ISA=avx2", "Kernels on Intel(R) Xeon(R) Processor, AMX" """
    chosen = "AMX" if isa_of(record) == "amx" else None
    how = getattr(record.case, "forced", None) or chosen
    return f"{KINDS[kind_of(record)].title} on {record.machine.cpu}" + (f", {how}" if how else "")


def isa_of(record: Record) -> str | None:
    """The best instruction set that our kernels could use; None for records that do not have it."""
    facts = getattr(record.metrics, "facts", None) or record.metrics
    return getattr(facts, "isa", None)


def of_newest_runs(records: Iterable[Record]) -> list[Record]:
    """For kinds whose rows one command measures, the rows of each table's newest code.

    A run with a forced instruction set has a table of its own, so it hides no rows of another set.
    """
    records = list(records)
    newest: dict[tuple[str, ...], Record] = {}
    for record in records:
        table = table_of(record)
        if table not in newest or record.time > newest[table].time:
            newest[table] = record

    def is_shown(record: Record) -> bool:
        return not KINDS[kind_of(record)].is_run or record.code == newest[table_of(record)].code

    return [record for record in records if is_shown(record)]


def kind_of(record: Record) -> str:
    """One of KINDS; raises TypeError for a row of a sweep."""
    if record.case.kind is None:
        raise TypeError(f"{record.key}: got a row of a sweep, expected one of {', '.join(KINDS)}")
    return record.case.kind


def footer(records: list[Record], shared: tuple[str, ...]) -> str:
    """Shared values of the rows, bandwidth while they were measured, and their origin."""
    case, machine = records[0].case, records[0].machine
    about = {name: getattr(case, name, None) for name in ("model", "kv_format", "threads", "forced", "clock")}
    parts = [str(about["model"])] if "model" in shared else []
    parts += [f"KV cache in {about['kv_format'] or 'float32'}"] if "kv_format" in shared else []
    if "threads" in shared:
        parts.append(f"{count(about['threads'] or 1, 'thread')} of {count(machine.cores or 1, 'core')}")
    parts += [f"forced by {about['forced']}"] if about["forced"] else []
    parts += ["processor time of the process"] if about["clock"] == "cpu" else []
    bandwidths = [value / 1e9 for record in records for value in bandwidths_of(record)]
    if bandwidths:
        parts.append(f"read bandwidth {min(bandwidths):.0f} to {max(bandwidths):.0f} GB/s in the same run")
    parts += units_notes([units for record in records if (units := units_of(record)) is not None])
    return "; ".join([*parts, origin(records)])


def origin(records: list[Record]) -> str:
    """Machine with its processors, and commits."""
    machines = [record.machine for record in records]
    processors = processors_text((one.cpu, one.processor) for one in machines)
    commits = dict.fromkeys(short_commit(record.commit, record.dirty) for record in records)
    return f"machine {machines[0].id}{processors}; commit {', '.join(commits)}"


def units_of(record: Record) -> list[str] | None:
    """Units that the operations of the row are compared with; empty if an older one; None if they are not the bound."""
    metrics = record.metrics
    if isinstance(metrics, VersusMetrics):
        return [] if metrics.roofline is None else list((metrics.roofline.units or {}).values())
    if not isinstance(metrics, KernelMetrics) or metrics.bound_by != "operations":
        return None
    return [] if metrics.unit is None else [metrics.unit]


def bandwidths_of(record: Record) -> list[float]:
    """Bytes per second of each measurement; empty for work that is not bound by them."""
    metrics = record.metrics
    source = metrics.roofline if isinstance(metrics, VersusMetrics) else metrics
    return getattr(source, "bandwidth_bytes_per_s", None) or []
