"""Records: one measured case a line of JSON, appended whole, read back whatever happened to the file."""

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qbench.harness.record_files import kept_file, record_files
from quant.errors import InputError

SCHEMA_VERSION = 1


def case_key(case: dict[str, Any]) -> str:
    """16 hex digits of what defines a case: model, recipe, what is measured and how. Results are no part of it."""
    return hashlib.sha256(json.dumps(case, sort_keys=True).encode()).hexdigest()[:16]


def make_record(case: dict[str, Any], metrics: dict[str, Any] | None, error: str | None = None) -> dict[str, Any]:
    """A case with what was measured, or with the error that it ended in, and all that it takes to judge it."""
    from qbench.harness.commit import code_version
    from qbench.harness.machine import machine, versions

    code = code_version()
    # The worker's own: it loaded the code afresh, which may have been edited since the sweep began.
    code |= {name: metrics[name] for name in code if metrics and name in metrics}
    return {
        "schema_version": SCHEMA_VERSION,
        "key": case_key(case),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "status": "error" if error else "ok",
        "error": error,
        "case": case,
        "metrics": metrics,
        "machine": machine(),
        **code,
        "versions": versions(),
    }


def append_record(path: Path, record: dict[str, Any]) -> None:
    """Add one line and wait until it is on disk. Writers take turns; a torn last line is closed off first.

    raises   InputError if the file cannot be written (its old lines stay as they are)
    """
    line = json.dumps(record, allow_nan=False, ensure_ascii=False).encode() + b"\n"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(f"{path}: cannot write records: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        end = os.fstat(descriptor).st_size
        if end and os.pread(descriptor, 1, end - 1) != b"\n":
            line = b"\n" + line
        written = os.write(descriptor, line)
        if written != len(line):
            os.ftruncate(descriptor, end)
            raise InputError(f"{path}: the disk is full, the record was not written; free some space and go on")
        os.fsync(descriptor)
    except OSError as error:
        raise InputError(f"{path}: cannot write records: {error.strerror}") from error
    finally:
        os.close(descriptor)


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file in order; a line that is no record is named on stderr and skipped.

    raises   InputError for a file that cannot be read or a record of a newer schema
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read records: {error.strerror}; run `qbench sweep` first") from error
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            schema = record["schema_version"]
            _ = record["key"], record["case"], record["status"]
        except (ValueError, TypeError, KeyError):
            print(f"qbench: {path}:{number}: skipped a line that is no record (torn by a crash?)", file=sys.stderr)
            continue
        if schema > SCHEMA_VERSION:
            raise InputError(
                f"{path}:{number}: record of schema {schema}, this qbench knows {SCHEMA_VERSION}; use a newer qbench"
            )
        yield record


def read_files(paths: str | Path | Iterable[str | Path]) -> Iterator[dict[str, Any]]:
    """The records of all files that `paths` name, files or folders. raises InputError as `read_records`"""
    for path in record_files(paths):
        yield from read_records(path)


def keep_records(path: Path, kept: Path) -> int:
    """Append to `kept` the rows of `path` that were measured and are not in it yet. returns how many were added

    path, kept   each a file or a folder; of a folder `kept`, each machine's rows go to its own file
    """
    held: dict[Path, set[tuple[str, str, str]]] = {}
    added = 0
    for record in read_files(path):
        if record["status"] != "ok":
            continue
        file = kept_file(kept, record["machine"]["id"])
        if file not in held:
            held[file] = {_identity(row) for row in read_records(file)} if file.exists() else set()
        if _identity(record) not in held[file]:
            append_record(file, record)
            held[file].add(_identity(record))
            added += 1
    return added


def _identity(record: dict[str, Any]) -> tuple[str, str, str]:
    return record["key"], record["machine"]["id"], record["time"]
