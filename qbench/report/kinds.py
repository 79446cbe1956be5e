"""Tables of records that are no sweep's: what other commands kept, one kind of record a row of KINDS."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from qbench.report.grid import markdown_grid
from qbench.report.latent import latent_cells
from qbench.report.planned import planned_cells
from qbench.report.serving import serving_cells
from qbench.report.speeds import Cells, kernel_cells, versus_cells
from qbench.report.table import count, short_commit

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of record.

    cells   of the rows of one table
    shared  keys of a case that all rows of a table have in common, beside the machine
    """

    title: str
    cells: Callable[[list[Record]], Cells]
    shared: tuple[str, ...] = ("threads", "clock")


# `kind` of a record's case, as the command that keeps it says, in the order of their tables
KINDS = {
    "kernel": Kind("Kernels", kernel_cells),
    "versus": Kind("The same files through llama.cpp", versus_cells),
    "throughput": Kind("Many requests at once", serving_cells),
    "mla": Kind("Ways to attend by latent attention, one layer", latent_cells, ("model", "kv", "threads", "clock")),
    "plan": Kind("Memory by part, as planned", planned_cells, ()),
}


def kinds_markdown(records: Iterable[Record]) -> str:
    """A table for each kind, machine and what else its rows share; "" where there are none.

    records   the latest of each case, of KINDS
    """

    def key(record: Record) -> tuple[str, ...]:
        kind = record["case"]["kind"]
        place = list(KINDS).index(kind)
        return (
            str(place),
            kind,
            record["machine"]["id"],
            *(str(record["case"].get(name)) for name in KINDS[kind].shared),
        )

    tables = []
    for (_, name, *_), group in groupby(sorted(records, key=key), key=key):
        rows, kind = list(group), KINDS[name]
        heading, cells, numeric = kind.cells(rows)
        grid = markdown_grid([heading, *cells], numeric)
        tables.append(f"**{kind.title} on {rows[0]['machine']['cpu']}**\n\n{grid}\n\n{footer(rows, kind.shared)}.")
    return "\n\n".join(tables) + "\n" if tables else ""


def footer(records: list[Record], shared: tuple[str, ...]) -> str:
    """What the rows share, bandwidth while they were measured, and their origin."""
    case, machine = records[0]["case"], records[0]["machine"]
    parts = [case["model"]] if "model" in shared else []
    parts += [f"keys and values in {case['kv'] or 'float32'}"] if "kv" in shared else []
    if "threads" in shared:
        parts.append(f"{count(case['threads'], 'thread')} of {count(machine['cores'], 'core')}")
    parts += ["processor time of the process"] if case.get("clock") == "cpu" else []
    bandwidths = [value / 1e9 for record in records for value in bandwidths_of(record["metrics"])]
    if bandwidths:
        parts.append(f"read bandwidth {min(bandwidths):.0f} to {max(bandwidths):.0f} GB/s in the same run")
    return "; ".join([*parts, origin(records)])


def origin(records: list[Record]) -> str:
    """Machine and commits."""
    commits = dict.fromkeys(short_commit(record["commit"], record["dirty"]) for record in records)
    return f"machine {records[0]['machine']['id']}; commit {', '.join(commits)}"


def bandwidths_of(metrics: dict[str, Any]) -> list[float]:
    """Bytes a second, each time that they were measured; none for what is not bound by them."""
    return metrics.get("bandwidth_bytes_per_s") or metrics.get("roofline", {}).get("bandwidth_bytes_per_s") or []
