"""Records as a table: the latest row of each case, with a group for all rows that may be compared."""

import hashlib
import json
import mmap
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.measure.records.record import Record, cannot_read, latest, read_records
from qbench.measure.records.record_files import record_files
from qbench.run.axes import AXES
from qbench.store.columns import COLUMNS, ORIGIN, TEXT, Column, keys_of_axis
from qbench.store.kept_rows import keep, place_of, read_kept
from qbench.store.scan import scan
from quant.regular_file import open_regular

if TYPE_CHECKING:
    import pandas as pd
    from duckdb import DuckDBPyConnection

Paths = str | Path | Iterable[str | Path]

STATE = {name: Column(name, TEXT) for name in ("status", "code")}
KIND = {"kind": Column("case.kind", TEXT)}  # of kernels and comparisons; a sweep's rows have no kind
KIND_IS = b'"kind":'
# Recipes that keep the weights as they are or only cast them: the row that others are read against.
UNQUANTIZED = ("f32", "f16", "bf16")


def nulls(places: Iterable[Sequence[str]]) -> dict[str, Any]:
    """A document whose merge removes these places, each a path of keys."""
    found: dict[str, Any] = {}
    for first, *rest in places:
        found[first] = found.get(first, {}) | nulls([rest]) if rest else None
    return found


# A recipe may name the KV format, so rows of one group may differ in it, in the cache, and in a limit.
OF_RECIPE = json.dumps(nulls([("recipe_sha256",), *(keys_of_axis(axis) for axis in AXES if axis.compared)]))

# Rows under a policy that were measured before its bound counted the tokens that the policy keeps: it counts all tokens
# of the text, so that a step reads more than the cache holds, or is faster than the bound. Such a share is no share.
ALL_TOKENS = "all tokens"
OF_BOUND = {
    "bound_bytes": Column("metrics.roofline.tg_bytes", "MAP(VARCHAR, DOUBLE)"),
    "bound_cache": Column("metrics.machine_peaks.cache_bytes"),
}
COUNTS_ALL_TOKENS = """policy <> 'full' and coalesce(
    (kv_ram is null and bound_bytes['kv_read'] > kv_bytes_held) or greatest(roofline_pp, roofline_tg) > 1, false)"""
# The processor's cache holds all that a step reads, so that the memory's bandwidth is no bound. Rows of older code keep
# no size of a cache, and no processor has one of this size.
LARGEST_CACHE = 1 << 30
IS_IN_CACHE = f"""memory is null and device = 'cpu'
    and coalesce(list_sum(map_values(bound_bytes)) <= coalesce(bound_cache, {LARGEST_CACHE}), false)"""
# A share above all: the peaks were read in a slow spell of the machine.
MOST = 1.005


def load_records(paths: Paths) -> "pd.DataFrame":
    """One row per case of a sweep: its keys, its figures under the records' names, flattened, and its origin.

    paths    files of records, or folders of them
    Rows of one `group` have the same model, protocol, machine, settings and threads; no others compare.
    raises   InputError for a file that cannot be read
    """
    return load_with_others(paths)[0]


def load_with_others(paths: Paths) -> tuple["pd.DataFrame", list[Path]]:
    """`load_records`, and those of the files that may hold records of other kinds too.

    The rows of large files are kept for the next time, see `kept_rows`; the files are as then, or they are read.
    """
    import duckdb

    files = record_files(paths)
    place = place_of(files, COLUMNS)
    with duckdb.connect() as con:
        if place is not None and read_kept(con, "results", place):
            return _plain(con.table("results").df()), files
        create_results(con, "results", files)
        frame = _plain(con.table("results").df())
        others = {name for (name,) in con.execute("select distinct file from rows where kind is not null").fetchall()}
        if place is not None and place == place_of(files, COLUMNS):  # nothing was written while they were read
            keep(con, "results", place)
    return frame, [file for file in files if str(file) in others]


def create_results(con: "DuckDBPyConnection", table: str, files: Sequence[Path]) -> None:
    """Make `table` of the latest row of each case of a sweep: unquantized ones first, then by bits per weight."""
    create_latest(con, "latest", files, COLUMNS | OF_BOUND, None)
    rows = con.execute("select settings, machine, protocol_hash from latest order by place").fetchall()
    con.execute(
        f"""
        create or replace temp table {table} as
        select "group", suite, recipe in {UNQUANTIZED} as is_baseline,
            latest.* exclude (suite, place, settings, bound_bytes, bound_cache) replace (
                if({COUNTS_ALL_TOKENS} or roofline_pp > {MOST}, null, roofline_pp) as roofline_pp,
                if({COUNTS_ALL_TOKENS} or roofline_tg > {MOST} or {IS_IN_CACHE}, null, roofline_tg) as roofline_tg,
                if({COUNTS_ALL_TOKENS}, '{ALL_TOKENS}', roofline_of) as roofline_of
            )
        from latest join (select unnest(?::varchar[]) as "group", unnest(range(1, ? + 1)) as place) using (place)
        order by is_baseline desc, bits_per_weight desc nulls last, place
        """,
        [_groups(rows), len(rows)],
    )


def create_latest(
    con: "DuckDBPyConnection", table: str, files: Sequence[Path], columns: Mapping[str, Column], kind: str | None
) -> None:
    """Make `table` of the row of each case and machine that was measured last, those of this kind.

    columns   `key`, `machine` and `time` are among them
    The table has `suite`, `place` (from 1, in the order in which the cases first came) and `settings`, the case without
    its compared keys, too.
    """
    scan(con, "rows", files, {**columns, **KIND})
    con.execute(
        f"""
        create or replace temp table {table} as
        select row_number() over (order by first) as place, rows.* exclude (whole_case, file, is_plain, kind),
            json_merge_patch(whole_case, '{OF_RECIPE}')::varchar as settings
        from rows join (
            select min(rowid) as first, arg_max(rowid, (time, rowid)) as last from rows group by key, machine
        ) on rows.rowid = last
        where kind is not distinct from ?
        """,
        [kind],
    )


def latest_records(paths: Paths, kinds: Collection[str | None] | None = None) -> dict[tuple[str, str], Record]:
    """The record of each case and machine that was measured last, whole, as `latest` finds it.

    kinds    of these kinds alone (None: a sweep's); by default of all
    raises   InputError for a file that cannot be read
    """
    files = record_files(paths) if kinds is None else files_with(paths, kinds)
    records = (record for file in files for record in read_records(file))
    wanted = (record for record in records if kinds is None or record.case.kind in kinds)
    return latest(wanted)


def measured_keys(path: Path, machines: Collection[str], code: str) -> set[str]:
    """Keys of the cases that one of these machines measured with this code. raises InputError as `read_records`"""
    import duckdb

    with duckdb.connect() as con:
        scan(con, "rows", [path], {name: ORIGIN[name] for name in ("key", "machine")} | STATE)
        sql = "select distinct key from rows where status = 'ok' and code = ? and machine in (select unnest(?))"
        return {key for (key,) in con.execute(sql, [code, list(machines)]).fetchall()}


def files_with(paths: Paths, kinds: Collection[str | None]) -> list[Path]:
    """The files that may hold a record of one of these kinds, found by its words: most have no such row."""
    words = tuple(f'{gap}"{kind}"'.encode() for kind in kinds for gap in ("", " "))
    return [file for file in record_files(paths) if None in kinds or _holds_any(file, words)]


def _holds_any(file: Path, words: tuple[bytes, ...]) -> bool:
    """Whether one of these follows a `"kind":`. raises InputError for a file that cannot be read"""
    longest = max(map(len, words))
    try:
        with open_regular(file) as opened:
            if os.fstat(opened.fileno()).st_size == 0:
                return False  # nothing to map
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
                place = content.find(KIND_IS)
                while place >= 0:
                    place += len(KIND_IS)
                    if content[place : place + longest].startswith(words):
                        return True
                    place = content.find(KIND_IS, place)
                return False
    except OSError as error:
        raise cannot_read(file, error) from error


def _plain(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Counts with gaps as floats with NaN, flags as bool or None, and JSON as objects."""
    import pandas as pd

    for name, column in frame.items():
        if isinstance(column.dtype, pd.Int64Dtype):
            frame[name] = column.astype("float64" if column.hasnans else "int64")
        elif isinstance(column.dtype, pd.BooleanDtype):
            frame[name] = column.astype(object).where(column.notna(), None)
    for name in (name for name, column in COLUMNS.items() if column.is_json):
        texts = {text: json.loads(text) for text in frame[name].dropna().unique()}
        frame[name] = frame[name].astype(object).map(texts.get)
    return frame


def _groups(rows: Sequence[tuple[str, str, str | None]]) -> list[str]:
    """For each (settings, machine, protocol hash) a short hash of the three, as rows that share them compare."""
    read, write = json.JSONDecoder().decode, json.JSONEncoder(sort_keys=True).encode
    ordered = {text: write(read(text)) for text in {row[0] for row in rows}}
    keys = [(ordered[text], machine) for text, machine, _ in rows]
    # A row that failed before it had a protocol joins the rows that had one in the same settings.
    known = {key: protocol for key, (_, _, protocol) in zip(keys, rows, strict=True) if protocol}
    joined = [(*key, row[2] or known.get(key)) for key, row in zip(keys, rows, strict=True)]
    digests = {key: hashlib.sha256(repr(key).encode()).hexdigest()[:12] for key in set(joined)}
    return [digests[key] for key in joined]
