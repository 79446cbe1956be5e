"""The baseline of the fixture's tests: the rows that one run saves and a later one is compared with."""

from dataclasses import dataclass, replace
from pathlib import Path

from qbench.comparison.rows import kept_floors, of_model
from qbench.gate.floors import measure
from qbench.gate.pairing import Pair, difference
from qbench.measure.records.kinds import GATE_TEST, GateTestCase
from qbench.measure.records.record import Record, append_record, read_records
from qbench.measure.records.record_files import kept_file, record_files
from qbench.run.work import QualityWork
from qbench.sources import open_source
from qbench.statistics.cell import Floors
from quant.errors import InputError


def case_of_test(
    gate: str,
    model: str | Path,
    name: str | None,
    *,
    quality: QualityWork | None = None,
    context: int | None = None,
    threads: int | None = None,
) -> GateTestCase:
    """Definition of a test: its gate, its settings and the model's name, not the model's path in this run."""
    shown = name or (Path(model).name if Path(model).exists() else str(model))
    fingerprint = open_source(str(model)).fingerprint()
    return GateTestCase(
        GATE_TEST, str(model), fingerprint, threads, gate=gate, name=shown, quality=quality, context=context
    )


@dataclass(frozen=True, slots=True)
class FixtureRows:
    """path   a file or a folder of one file per machine"""

    path: Path

    def save(self, record: Record) -> None:
        """And of quality the noise floor that it will be judged by."""
        file = kept_file(self.path, record.machine.id)
        append_record(file, record)
        if test_of(record).gate == "quality":
            for floor in measure(record):
                append_record(file, floor)

    def like(self, record: Record) -> Record:
        """The latest row of the same test. raises InputError if this machine has no such row"""
        test = test_of(record)
        rows = [row for file in record_files(self.path) for row in read_records(file)]
        alike = [row for row in rows if isinstance(row.case, GateTestCase) and _same(row.case) == _same(test)]
        here = [row for row in alike if row.machine.id == record.machine.id]
        if not alike:
            raise InputError(f"{self.path} lacks {test.name}; run once with --qbench-save")
        if not here:
            raise InputError(f"{self.path} is of another machine: {difference(alike[-1].machine, record.machine)}")
        return max(here, key=lambda row: row.time)

    def floors(self, pair: Pair) -> Floors:
        return of_model(kept_floors([str(self.path)]), pair.baseline)


def test_of(record: Record) -> GateTestCase:
    if not isinstance(record.case, GateTestCase):
        raise TypeError(f"{record.key}: got a row of kind {record.case.kind!r}, expected {GATE_TEST!r}")
    return record.case


def _same(case: GateTestCase) -> GateTestCase:
    """The case without the parts that may differ between runs of one test."""
    return replace(case, model="", fingerprint=None)
