"""Rows of `qbench kernels` as records, beside those of sweeps."""

from pathlib import Path
from typing import Any

from qbench.harness.record import append_record, make_record

CASE_KEYS = ("op", "shape", "tokens", "threads", "clock")  # what defines a row; the rest was measured


def keep_row(path: str, row: dict[str, Any]) -> None:
    """raises InputError if the file cannot be written"""
    case = {"kind": "kernel"} | {key: row[key] for key in CASE_KEYS}
    metrics = {key: value for key, value in row.items() if key not in CASE_KEYS}
    append_record(Path(path), make_record(case, metrics))
