"""Records as the JSON in their files, for tests that write and read them."""

from pathlib import Path
from typing import Any

from qbench import store
from qbench.measure.records import record as records
from qbench.measure.records.kinds import classes_of
from qbench.measure.records.record import Record


def case_of(document: dict[str, Any]) -> Any:
    return classes_of(document.get("kind"))["case"].from_json(document)


def case_key(case: dict[str, Any]) -> str:
    return records.case_key(case_of(case))


def make_record(case: dict[str, Any], metrics: dict[str, Any] | None, error: str | None = None) -> dict[str, Any]:
    measured = None if metrics is None else classes_of(case.get("kind"))["metrics"].from_json(metrics)
    return records.make_record(case_of(case), measured, error).to_json()


def append_record(path: Path, document: dict[str, Any]) -> None:
    records.append_record(path, Record.from_json(document))


def read_records(path: Path) -> list[dict[str, Any]]:
    return [record.to_json() for record in records.read_records(path)]


def read_files(paths: Any) -> list[dict[str, Any]]:
    return [record.to_json() for record in records.read_files(paths)]


def latest_records(paths: Any, kinds: Any = None) -> dict[tuple[str, str], dict[str, Any]]:
    return {key: record.to_json() for key, record in store.latest_records(paths, kinds).items()}
