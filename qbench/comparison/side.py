"""One side of a comparison: a model that is measured now, or the rows of records that a few words pick out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from qbench.measure.records.record import Record, latest, read_files
from qbench.measure.records.record_files import SUFFIX
from qbench.run.cache_spec import DENSE, DYNAMIC, FULL
from qbench.run.choices import FAST
from qbench.run.renamed import check_axis
from qbench.words.written import nearest
from quant.errors import InputError

# Fields of the record outside its case; the beginning of a value is enough.
OF_RECORD: dict[str, Callable[[Record], str | None]] = {
    "machine": lambda record: record.machine.id,
    "commit": lambda record: record.commit,
    "key": lambda record: record.key,
    "time": lambda record: record.time,
}


# Values of keys that a case does not name.
DEFAULTS = {"compute": FAST, "cache": DYNAMIC, "policy": FULL, "prefill": DENSE}


@dataclass(frozen=True, slots=True)
class Rows:
    """`PATH:KEY=VALUE,KEY=VALUE`: measured rows of a file or folder of records, of each case the latest."""

    path: str
    where: Mapping[str, str]

    def __str__(self) -> str:
        return self.path + (":" + ",".join(f"{key}={value}" for key, value in self.where.items()) if self.where else "")


def parse_side(word: str, path: str | None = None) -> Rows | None:
    """The rows that the word names; None if it is a model.

    path     of the other side: taken where the word begins with ":"
    raises   InputError for a condition that cannot be parsed
    """
    head, colon, conditions = word.partition(":")
    if not head and path is None:
        raise InputError(f"{word}: names no records; begin with a file or folder, as in results/quickstart{word}")
    if not (colon and "=" in conditions) and not _holds_records(word):
        return None
    pairs = [part.partition("=") for part in conditions.split(",")] if colon else []
    for key, equals, value in pairs:
        if not (key and equals and value):
            raise InputError(f"{word}: {key + equals + value!r} is no condition; expected KEY=VALUE,KEY=VALUE")
        check_axis(key, value, word)
    return Rows(head or path or "", {key: value for key, _, value in pairs})


def _holds_records(word: str) -> bool:
    path = Path(word)
    if path.is_dir():
        return not (path / "config.json").exists() and next(path.rglob(f"*{SUFFIX}"), None) is not None
    return word.endswith(SUFFIX)


def select(rows: Rows) -> list[Record]:
    """The latest row of each case and machine that was measured and meets the conditions.

    raises   InputError for a key that no row has, and if no row is left
    """
    measured = [record for record in read_files(rows.path) if record.is_ok and record.case.kind is None]
    if not measured:
        raise InputError(f"{rows.path}: no measured row; run `qbench sweep` first")
    left = measured
    for key, pattern in rows.where.items():
        before, left = left, [record for record in left if matches(record, key, pattern)]
        if not left:
            raise InputError(f"{rows}: no row with {key}={pattern}; {_there_are(before, key, pattern)}")
    return list(latest(left).values())


def identity(record: Record) -> tuple[str, str, str]:
    return record.key, record.machine.id, record.time


def matches(record: Record, key: str, pattern: str) -> bool:
    value = value_of(record, key)
    return fnmatchcase(_text(value), pattern + ("*" if key in OF_RECORD else ""))


def value_of(record: Record, key: str) -> Any:
    """Value in the record for OF_RECORD, else in its case as JSON, names joined by dots; None if it is missing."""
    if key in OF_RECORD:
        return OF_RECORD[key](record)
    value: Any = record.case.to_json()
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return DEFAULTS.get(key) if value is None else value


def _there_are(records: Sequence[Record], key: str, pattern: str) -> str:
    """Text of a message about the values that rows have."""
    known = [*OF_RECORD, *dict.fromkeys([*DEFAULTS, *(name for record in records for name in record.case.to_json())])]
    if key.split(".")[0] not in known:
        return f"known keys: {', '.join(known)}{nearest(key, known)}"
    values = list(dict.fromkeys(_text(value_of(record, key)) for record in records))
    return f"there are {', '.join(values)}{nearest(pattern, values)}"


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


def named_keys(sides: Iterable[Rows]) -> list[str]:
    return list(dict.fromkeys(key for rows in sides for key in rows.where))
