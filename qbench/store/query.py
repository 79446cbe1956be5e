"""SQL over all records: tables that are made when a query names them, and that it cannot change."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from qbench.measure.records.record_files import record_files
from qbench.store.columns import KERNEL_COLUMNS, VERSUS_COLUMNS, WHOLE_COLUMNS
from qbench.store.launches import join_launches
from qbench.store.load import Paths, create_latest, create_results
from qbench.store.scan import scan
from quant.errors import InputError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Tables that can be queried, and the meaning of a row.
TABLES = {
    "results": "the latest measurement of each case of a sweep, with the mean speed of its launches",
    "kernels": "the latest of each kernel, shape and number of tokens (`qbench kernels --keep`)",
    "versus": "the latest of each file beside llama.cpp (`qbench race --vs --keep`)",
    "records": "every row as it was written, as JSON: metrics->>'$.kld.mean'",
}
OF_KIND = {"kernels": (KERNEL_COLUMNS, "kernel"), "versus": (VERSUS_COLUMNS, "versus")}
# DuckDB lets a query read and write its folder of temporary files, by default ./.tmp, so there is no such folder.
IN_MEMORY: dict[str, str | bool | int | float | list[str]] = {"temp_directory": ""}
LOCK = "set enable_external_access = false; set lock_configuration = true"
MOST_EXPLAIN_TOKENS = 16  # of EXPLAIN's options: `(ANALYZE true, FORMAT json)` has 7


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query.

    types   SQL types of the columns
    rows    values as Python's own; JSON is text
    """

    names: list[str]
    types: list[str]
    rows: list[tuple[Any, ...]]


def query(sql: str, paths: Paths) -> Answer:
    """Result of one SELECT over TABLES.

    paths    files of records, or folders of them
    raises   InputError for wrong SQL, for SQL that does not only read these tables, and if there are no records
    """
    import duckdb

    try:
        sql.encode()
    except UnicodeEncodeError as error:  # a byte of the command line that is no UTF-8
        raise InputError(f"SQL: not UTF-8 at character {error.start}; write it in UTF-8") from None
    # DuckDB opens the files of a query even to list its tables, so a connection without access to files lists them.
    with duckdb.connect(config=IN_MEMORY) as locked:
        locked.execute(LOCK)
        named = _named(locked, sql)
    files = record_files(paths)
    with duckdb.connect(config=IN_MEMORY) as con:
        for table in named:
            _create(con, table, files)
        if not any(con.execute(f"select 1 from {table} limit 1").fetchone() for table in named):
            made = "; ".join(f"{table} has {TABLES[table]}" for table in named)
            raise InputError(f"no records for this query in {', '.join(map(str, files))}: {made}")
        con.execute("drop table if exists rows; drop table if exists latest")
        # From here on there are these tables, and neither files nor the network.
        con.execute(LOCK)
        try:
            con.execute(sql)
            rows = con.fetchall()
        except duckdb.Error as error:
            raise InputError(f"SQL: {_message(error)}") from error
        return Answer([about[0] for about in con.description], [str(about[1]) for about in con.description], rows)


def schema(paths: Paths = ()) -> Answer:
    """(table, column, type) of every column that a query may name. It needs no records."""
    import duckdb

    rows = []
    with duckdb.connect() as con, TemporaryDirectory(prefix="qbench-schema-") as folder:
        empty = Path(folder) / "no.jsonl"
        empty.touch()
        for table in TABLES:
            _create(con, table, record_files(paths) or [empty])
            rows += [(table, name, kind) for name, kind, *_ in con.execute(f"describe {table}").fetchall()]
    return Answer(["table", "column", "type"], ["VARCHAR"] * 3, rows)


def _named(con: "DuckDBPyConnection", sql: str) -> list[str]:
    """The tables of the query, or all of them if it names no table: it may list or explain them."""
    import duckdb

    try:
        statements = con.extract_statements(sql)
        if len(statements) == 1 and statements[0].type.name == "EXPLAIN":
            sql = _explained(con, sql)
            statements = con.extract_statements(sql)
        if len(statements) != 1 or statements[0].type.name != "SELECT":
            raise InputError("expected one SELECT: a query reads the records and changes nothing")
        named = con.get_table_names(sql)
    except duckdb.Error as error:
        raise InputError(f"SQL: {_message(error)}") from error
    return [table for table in TABLES if table in named] or list(TABLES)


def _explained(con: "DuckDBPyConnection", sql: str) -> str:
    """The statement behind EXPLAIN and its options; EXPLAIN ANALYZE executes it, whatever it is.

    con      that parses only
    """
    import duckdb

    text = sql.encode()  # offsets of tokens count bytes
    _, *rest = (start for start, kind in duckdb.tokenize(sql) if kind != duckdb.token_type.comment)
    behind = [text[start:].decode() for start in rest[:MOST_EXPLAIN_TOKENS]]
    return next((statement for statement in behind if _is_sql(con, statement)), sql)


def _is_sql(con: "DuckDBPyConnection", text: str) -> bool:
    import duckdb

    try:
        return bool(con.extract_statements(text))
    except duckdb.Error:
        return False


def _create(con: "DuckDBPyConnection", table: str, files: Sequence[Path]) -> None:
    """Make one of TABLES."""
    if table == "results":
        create_results(con, table, files)
        join_launches(con, table, files)
    elif table == "records":
        _create_records(con, table, files)
    else:
        create_latest(con, "latest", files, *OF_KIND[table])
        con.execute(
            f"create temp table {table} as select suite, * exclude (suite, place, settings) from latest order by place"
        )


def _create_records(con: "DuckDBPyConnection", table: str, files: Sequence[Path]) -> None:
    """Every row once, even if it is in the folder of its run and among the kept ones."""
    scan(con, "rows", files, WHOLE_COLUMNS)
    con.execute(
        f"""
        create temp table {table} as
        select suite, rows.* exclude (suite, file, is_plain, whole_case, machine_id)
        from rows join (select min(rowid) as first from rows group by key, machine_id, time) on rows.rowid = first
        order by first
        """
    )


def _message(error: Exception) -> str:
    """Message of DuckDB on one line, without its picture of the place."""
    return " ".join(str(error).split("\n\nLINE ")[0].split())
