"""A comparison as `--json` prints it."""

from dataclasses import dataclass

from qbench.comparison.comparison import Comparison
from qbench.measure.records.record import Record
from qbench.statistics.cell import Cell
from quant.json_data import JsonData


@dataclass(frozen=True, slots=True)
class ComparedRow(JsonData):
    """Which row was compared."""

    model: str
    recipe: str | None
    kv_format: str | None
    threads: int | None
    context: int | None
    batch: int | None
    key: str
    machine: str
    commit: str | None
    time: str
    protocol_hash: str | None


@dataclass(frozen=True, slots=True)
class ComparisonRow(JsonData):
    """cells: one per metric; left_out: the reasons why other metrics have no cell"""

    a: ComparedRow
    b: ComparedRow
    cells: list[Cell]
    left_out: list[str]


def json_row(comparison: Comparison) -> ComparisonRow:
    return ComparisonRow(_row_of(comparison.a), _row_of(comparison.b), comparison.cells, comparison.left_out)


def _row_of(record: Record) -> ComparedRow:
    case, quality = record.model_case, record.figures.quality
    return ComparedRow(
        model=case.model,
        recipe=case.recipe,
        kv_format=case.kv_format,
        threads=case.threads,
        context=case.context,
        batch=None if "batch" in case.lacks else case.batch,
        key=record.key,
        machine=record.machine.id,
        commit=record.commit,
        time=record.time,
        protocol_hash=quality and quality.protocol and quality.protocol.hash,
    )
