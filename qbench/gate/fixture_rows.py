"""The baseline of the fixture's tests: the rows that one run saves and a later one is compared with."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.compare.kept_floor import kept_floors, of_model
from qbench.gate.floors import measure
from qbench.gate.pairing import Pair, Record, difference
from qbench.measure.records.kinds import OtherCase
from qbench.measure.records.record import Record as RowRecord
from qbench.measure.records.record import append_record, read_records
from qbench.measure.records.record_files import kept_file, record_files
from qbench.sources import open_source
from qbench.statistics import Floors
from quant.errors import InputError

KIND = "gate-test"


def case_of_test(gate: str, model: str | Path, name: str | None, **settings: Any) -> OtherCase:
    """What defines a test: its gate, its settings and the model's name, not where the model lies in this run."""
    shown = name or (Path(model).name if Path(model).exists() else str(model))
    about = {"kind": KIND, "gate": gate, "name": shown, "model": str(model)}
    about |= {"fingerprint": open_source(str(model)).fingerprint()} | settings
    return OtherCase.from_json(about)


@dataclass(frozen=True, slots=True)
class FixtureRows:
    """path   a file or a folder of one file a machine"""

    path: Path

    def save(self, record: Record) -> None:
        """And of quality the noise floor that it will be judged by."""
        file = kept_file(self.path, record["machine"]["id"])
        append_record(file, RowRecord.from_json(record))
        if record["case"]["gate"] == "quality":
            for floor in measure(record):
                append_record(file, floor)

    def like(self, record: Record) -> Record:
        """The latest row of the same test. raises InputError for none of this machine"""
        rows = [row.to_json() for file in record_files(self.path) for row in read_records(file)]
        alike = [row for row in rows if _same_test(row["case"]) == _same_test(record["case"])]
        here = [row for row in alike if row["machine"]["id"] == record["machine"]["id"]]
        if not alike:
            raise InputError(f"{self.path} lacks {record['case']['name']}; run once with --qbench-save")
        if not here:
            raise InputError(
                f"{self.path} is of another machine: {difference(alike[-1]['machine'], record['machine'])}"
            )
        return max(here, key=lambda row: row["time"])

    def floors(self, pair: Pair) -> Floors:
        return of_model(kept_floors([str(self.path)]), pair.baseline)


def _same_test(case: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in case.items() if name not in ("model", "fingerprint")}
