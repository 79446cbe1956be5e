"""Records: one measured case a line of JSON, appended whole, read back whatever happened to the file."""

import hashlib
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Self

from qbench.measure.host.commit import CodeVersion, code_version
from qbench.measure.host.machine import Machine, machine, versions
from qbench.measure.metrics import Metrics
from qbench.measure.records.kinds import AnyCase, AnyMetrics, classes_of
from qbench.measure.records.line_file import append, content, own_turn, read_lines
from qbench.measure.records.migrate import SCHEMA_VERSION, identity_of, migrate
from qbench.measure.records.record_files import kept_file, record_files
from qbench.measure.records.shape import is_record, utc_text
from qbench.run.case import Case
from quant.errors import InputError
from quant.json_data import JsonData, JsonRow, instance_of

MOST_NAMED = 5  # lines per file that are no records
KERNEL_ROW = b'{"schema": '  # beginning of the rows of gpu_kernels, which have a form of their own


@dataclass(frozen=True, slots=True)
class Origin(JsonData):
    """The machine, the code and the package versions that measured."""

    json_flat: ClassVar[tuple[str, ...]] = ("code",)

    machine: Machine
    code: CodeVersion
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Record(JsonRow):
    """One measured case, or the error that it ended in, and all that it takes to judge it.

    case, metrics   of a model's rows a Case and Metrics; of other kinds as `kinds` has them
    status          "ok" or "error"
    time            in `utc_text`'s form, whatever the form in the file: such texts are in the order of time
    """

    schema_version: int
    key: str
    time: str
    status: str
    error: str | None
    case: AnyCase
    metrics: AnyMetrics | None
    machine: Machine
    commit: str | None = None
    dirty: bool | None = None
    code: str | None = None
    versions: dict[str, str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", utc_text(self.time))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """raises ValueError for a document that is no record"""
        return instance_of(cls, document, classes_of((document.get("case") or {}).get("kind")))

    @property
    def is_ok(self) -> bool:
        return self.status == "ok"

    @property
    def model_case(self) -> Case:
        """The case of a model's row. raises TypeError for a row of another kind"""
        if not isinstance(self.case, Case):
            raise TypeError(f"{self.key}: got a row of kind {self.case.kind!r}, expected a model's")
        return self.case

    @property
    def figures(self) -> Metrics:
        """The metrics of a model's row, empty for a case that failed. raises TypeError for a row of another kind"""
        if self.metrics is not None and not isinstance(self.metrics, Metrics):
            raise TypeError(f"{self.key}: got a row of kind {self.case.kind!r}, expected a model's")
        return self.metrics or Metrics()


def case_key(case: JsonData) -> str:
    """16 hex digits of the definition of a case: model, recipe, measurements and options. Results are no part of it."""
    return json_hash(identity_of(case.to_json()))


def json_hash(document: Mapping[str, Any]) -> str:
    """16 hex digits of a JSON object, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def make_record(
    case: AnyCase, metrics: AnyMetrics | None, error: str | None = None, where: Origin | None = None
) -> Record:
    """A case with its measurements or its error, and with the facts that are needed to judge it.

    where    `origin()` of the machine that measured, if that is another one
    """
    where = where or origin()
    facts = getattr(metrics, "facts", None)
    # The worker's own: it loaded the code after the sweep began, and the code may have been edited since.
    code = where.code if facts is None or facts.code is None else facts
    return Record(
        schema_version=SCHEMA_VERSION,
        key=case_key(case),
        # Fine enough to distinguish two rows of a quick case.
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        status="error" if error else "ok",
        error=error,
        case=case,
        metrics=metrics,
        machine=where.machine,
        commit=code.commit,
        dirty=code.dirty,
        code=code.code,
        versions=where.versions,
    )


def origin() -> Origin:
    """The origin of rows that this process writes."""
    return Origin(machine(), code_version(), versions())


def line_of(record: Record) -> bytes:
    """The record as one line. raises ValueError for a number that JSON cannot hold"""
    return json.dumps(record.to_json(), allow_nan=False, ensure_ascii=False).encode() + b"\n"


def append_record(path: Path, record: Record) -> None:
    """Add one line and wait until it is on disk. Writers take turns; a torn last line is closed off first.

    Readers take the latest row of a case, so a row gets a later time than the rows of its case that the file holds,
    even if the clock was set back.

    raises   InputError if the file cannot be written (its old lines stay as they are)
    """
    line_of(record)  # a number that JSON cannot hold is refused before there is a file
    with own_turn(path) as descriptor:
        append(path, descriptor, line_of(_later(record, content(descriptor))))


def _later(record: Record, rows: bytes) -> Record:
    """The record, with a time after those of its case and machine in `rows`."""
    key = record.key.encode()
    found = (parse_record(line) for line in rows.split(b"\n") if key in line)
    case = record.key, record.machine.id
    newest = max((row.time for row in found if row is not None and (row.key, row.machine.id) == case), default="")
    if record.time > newest:
        return record
    try:
        moment = datetime.fromisoformat(newest) + timedelta(milliseconds=1)
    except (ValueError, OverflowError):  # no day of the calendar, or the last moment
        return record
    return replace(record, time=moment.isoformat(timespec="milliseconds"))


def read_records(path: Path, machines: Collection[str] | None = None) -> Iterator[Record]:
    """The records of a file in order and in today's schema; lines that are no records are skipped.

    The first MOST_NAMED of those are named on stderr, unless they are rows of gpu_kernels.

    machines  ids of machines, without whose text a line is skipped unread; None: all machines
    raises   InputError for a file that cannot be read or a record of a newer schema
    """
    try:
        lines = read_lines(path)
    except OSError as error:
        raise cannot_read(path, error) from error
    num_skipped = 0
    ids = None if machines is None else [f'"{each}"'.encode() for each in machines]
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith(KERNEL_ROW) or not (ids is None or any(each in line for each in ids)):
            continue
        record = parse_record(line)
        if record is None:
            num_skipped += 1
            if num_skipped <= MOST_NAMED:
                print(f"qbench: {path}:{number}: skipped a line that is no record (torn by a crash?)", file=sys.stderr)
            continue
        if record.schema_version > SCHEMA_VERSION:
            raise InputError(
                f"{path}:{number}: record of schema {record.schema_version}, this qbench knows {SCHEMA_VERSION}; "
                "use a newer qbench"
            )
        yield record
    if num_skipped > MOST_NAMED:
        print(f"qbench: {path}: skipped {num_skipped - MOST_NAMED} more lines that are no records", file=sys.stderr)


def parse_record(line: bytes) -> Record | None:
    """The record that the line holds, in today's schema; one of a newer schema as it is; None for another line."""
    try:
        document = json.loads(line, parse_constant=_no_number)
        return Record.from_json(migrate(document)) if is_record(document) else None
    except ValueError:
        return None


def _no_number(text: str) -> None:
    """Refuse NaN and Infinity, which Python reads, JSON lacks and no record of ours holds."""
    raise ValueError(f"{text} is no JSON")


def cannot_read(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot read records: {error.strerror}; run `qbench sweep` first")


def read_files(paths: str | Path | Iterable[str | Path]) -> Iterator[Record]:
    """The records of all files that `paths` name, files or folders. raises InputError as `read_records`"""
    for path in record_files(paths):
        yield from read_records(path)


def latest(records: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """The newest row of each (key, machine id), in the order in which the cases first came.

    If rows have one time, the later in `records`: files may be read in any order, so their place says little.
    """
    found: dict[tuple[str, str], Record] = {}
    for record in records:
        case = record.key, record.machine.id
        if case not in found or record.time >= found[case].time:
            found[case] = record
    return found


def keep_records(path: Path, kept: Path) -> int:
    """Append to `kept` the rows of `path` that were measured and are not in it yet. returns how many were added

    path, kept   each a file or a folder; of a folder `kept`, each machine's rows go to its own file
    """
    rows: dict[Path, list[Record]] = {}
    for record in read_files(path):
        if record.is_ok:
            rows.setdefault(kept_file(kept, record.machine.id), []).append(record)
    return sum(_append_new(file, records) for file, records in rows.items())


def _append_new(path: Path, records: list[Record]) -> int:
    """Append those that the file does not hold, looked up and written in one turn. returns how many"""
    with own_turn(path) as descriptor:
        held = {_identity(row) for row in map(parse_record, content(descriptor).split(b"\n")) if row is not None}
        fresh = {_identity(row): row for row in records if _identity(row) not in held}
        if fresh:
            append(path, descriptor, b"".join(line_of(row) for row in fresh.values()))
    return len(fresh)


def _identity(record: Record) -> tuple[str, str, str]:
    return record.key, record.machine.id, record.time
