"""A row that a command printed, kept as a record next to those of sweeps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qbench.measure.records.kinds import AnyCase, AnyMetrics, case_and_metrics
from qbench.measure.records.record import append_record, make_record
from qbench.measure.records.record_files import kept_file

GIVEN = {
    "forced",
    "policy",
    "prefill_chunk",
    "prefill",
    "attention_choice",
    "micro_batches",
    "dispatch",
}  # keys that a case has only where something is, so that rows without them keep their identity


def keep_row(path: str, row: Mapping[str, Any], about: Mapping[str, str], case_keys: Sequence[str]) -> None:
    """Append `row`: `about` and the columns of `case_keys` define its case, the rest was measured.

    path     a file, or a folder in which this machine has a file of its own
    raises   InputError if the file cannot be written
    """
    case = {**about} | {key: row[key] for key in case_keys if key not in GIVEN or row.get(key) is not None}
    metrics = {key: value for key, value in row.items() if key not in case_keys}
    of_case, of_metrics = case_and_metrics(case["kind"])
    keep_case(path, of_case.from_json(case), of_metrics.from_json(metrics))


def keep_case(path: str, case: AnyCase, metrics: AnyMetrics) -> None:
    """Append a measured case. path and raises as above"""
    record = make_record(case, metrics)
    append_record(kept_file(Path(path), record.machine.id), record)
