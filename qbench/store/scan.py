"""Lines of records into a DuckDB table: each line is parsed once, and only the requested parts are kept."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from qbench.measure.records.migrate import SCHEMA_VERSION
from qbench.measure.records.record import cannot_read, line_of, read_records
from qbench.measure.records.shape import FIGURES, OF_MODEL, STATES, UTC_TEXT
from qbench.store.columns import Column
from quant.regular_file import open_regular

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TypeTree: TypeAlias = dict[str, "TypeTree | str"]  # key of a record -> its SQL type, or those of its own keys

# The oldest schema with columns in the same places as today's: rows of an older one are migrated before they are read.
READ_AS_IS = 4
# Keys of every record, read whatever columns are asked for.
IDENTITY = {"schema_version": "BIGINT", "machine.id": "VARCHAR"} | dict.fromkeys(("key", "status", "time"), "VARCHAR")
CHECKED = {f"metrics.{name}": "JSON" for name in FIGURES}  # as they are written: a text is no number
TEXT, TEXT_OR_NULL = "('VARCHAR')", "('VARCHAR', 'NULL')"
IS_OF_MODEL = " and ".join(
    f"json_type(whole_case, '$.{name}') in {TEXT_OR_NULL if may_be_null else TEXT}"
    for name, may_be_null in OF_MODEL.items()
)
NUMBERS = ("DOUBLE", "BIGINT", "UBIGINT", "NULL")  # types of JSON, as DuckDB names them
ARE_NUMBERS = " and ".join(f"coalesce(json_type({path}) in {NUMBERS}, true)" for path in CHECKED)
# A record that Python need not read first. As `is_record` has it, except for the form of the time, and that a value
# within the metrics that should be a mapping is read as an empty one.
IS_PLAIN = f"""key is not null and machine.id is not null and status in {STATES}
    and regexp_full_match(time, '{UTC_TEXT}') and (json_type(whole_case, '$.kind') = 'VARCHAR' or ({IS_OF_MODEL}))
    and (metrics is not null or status <> 'ok')
    and {ARE_NUMBERS}
    and json_type(whole_case) = 'OBJECT' and schema_version between {READ_AS_IS} and {SCHEMA_VERSION}"""
OBJECTS = {"case", "metrics", "machine"}  # with columns of their own parts
# Bytes of one line: the sums of a long text's windows and of a task's items can take some megabytes.
LONGEST_LINE = 2**26
GLOB = set("*?[")  # a file name with one of these is a pattern to DuckDB


def scan(con: "DuckDBPyConnection", table: str, files: Sequence[Path], columns: Mapping[str, Column]) -> None:
    """Make `table` of the records in `files`, in their order, one row per line.

    columns  name -> the part of the record that it holds; `whole_case` (JSON), `suite` (the file's folder) and
             `is_plain` are added
    raises   InputError for a file that cannot be read or a record of a newer schema

    A file with a line that is no record, of a schema that has to be migrated, or with a time in another form than
    `utc_text`'s is read in Python: that names skipped lines, and refuses newer ones.
    """
    for file in files:
        _require_readable(file)
    with tempfile.TemporaryDirectory(prefix="qbench-records-") as folder:
        copies = {file: _copy(file, Path(folder)) for file in files if GLOB & set(str(file))}
        _create(con, table, files, copies, columns)
        odd = {name for (name,) in con.execute(f"select distinct file from {table} where not is_plain").fetchall()}
        if odd:
            copies |= {file: _copy(file, Path(folder)) for file in files if str(file) in odd}
            _create(con, table, files, copies, columns)


def _require_readable(file: Path) -> None:
    try:
        open_regular(file).close()
    except OSError as error:
        raise cannot_read(file, error) from error


def _copy(file: Path, folder: Path) -> Path:
    """The file's records in today's schema, as a file of `folder`."""
    copy = folder / f"{len(list(folder.iterdir()))}.jsonl"
    copy.write_bytes(b"".join(line_of(record) for record in read_records(file)))
    return copy


def _create(
    con: "DuckDBPyConnection",
    table: str,
    files: Sequence[Path],
    copies: Mapping[Path, Path],
    columns: Mapping[str, Column],
) -> None:
    stored = IDENTITY | {column.path: column.stored for column in columns.values()} | CHECKED
    # The keys of a case are the suites' own, so it is always kept whole too.
    whole = sorted({"case", *stored} & OBJECTS)
    fields = _nested({path: kind for path, kind in stored.items() if path not in whole})
    parts = {name: json.dumps(fields.pop(name)) for name in whole if name in fields}
    names = {str(copies.get(file, file)): str(file) for file in files}
    con.execute(
        f"""
        create or replace temp table {table} as
        select {", ".join(_shown(name, column, whole) for name, column in columns.items())},
            whole_case, file, parse_path(file)[-2] as suite, coalesce({IS_PLAIN}, false) as is_plain
        from (
            select * exclude ({", ".join(map(_quoted, whole))}), map_extract_value(map(?, ?), filename) as file,
                {", ".join([f"{_quoted(name)} as whole_{name}" for name in whole])},
                {", ".join([f"json_transform({_quoted(name)}, ?) as {_quoted(name)}" for name in parts])}
            from read_json(?, columns = ?, format = 'newline_delimited', records = true, ignore_errors = true,
                filename = true, maximum_object_size = {LONGEST_LINE})
        )
        """,
        [
            *(list(names), list(names.values())),
            *parts.values(),
            list(names),
            {name: _sql_type(part) for name, part in fields.items()} | dict.fromkeys(whole, "JSON"),
        ],
    )


def _shown(name: str, column: Column, whole: Sequence[str]) -> str:
    value = f"whole_{column.path}" if column.path in whole else _quoted(column.path)
    value = f"try_cast({value} as {column.stored})" if column.path in CHECKED else value
    return f"{column.expression.format(value)} as {_quoted(name)}"


def _nested(fields: Mapping[str, str]) -> TypeTree:
    """{"a.b": type, "c": type} -> {"a": {"b": type}, "c": type}"""
    tree: TypeTree = {}
    for path, kind in fields.items():
        *above, name = path.split(".")
        node = tree
        for part in above:
            child = node.setdefault(part, {})
            assert not isinstance(child, str), f"{path}: {part} is a column"
            node = child
        node[name] = kind
    return tree


def _sql_type(part: TypeTree | str) -> str:
    if isinstance(part, str):
        return part
    return "STRUCT({})".format(", ".join(f"{_quoted(name)} {_sql_type(kind)}" for name, kind in part.items()))


def _quoted(path: str) -> str:
    return ".".join(f'"{name}"' for name in path.split("."))
