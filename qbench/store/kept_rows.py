"""The table made of large records, kept as Parquet: parsing a hundred thousand lines of JSON takes seconds.

The records stay the only source. Kept rows are among the user's caches. They belong to certain files at one moment and
to one set of columns, and may be deleted at any time.
"""

import hashlib
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.measure.records.migrate import SCHEMA_VERSION
from qbench.words.written import real_path

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LEAST_BYTES = 2**24  # less is parsed in about 0.5 s
# A file that was written a moment ago may be written again within one step of its file system's clock.
SETTLED_S = 2.0
VERSION = 3  # of the code that makes the rows, in addition to the columns, DuckDB's version and the records' schema


def place_of(files: Sequence[Path], columns: object) -> Path | None:
    """Path of the kept rows of the files as they are now; None if keeping is not worth it, or the files are changing.

    columns   code that makes the rows, as text: other code uses another place
    """
    import duckdb

    try:
        found = [file.stat() for file in files]
    except OSError:
        return None
    if sum(one.st_size for one in found) < LEAST_BYTES or any(time.time() - one.st_mtime < SETTLED_S for one in found):
        return None
    made_by = _digest(VERSION, SCHEMA_VERSION, duckdb.__version__, columns)
    state = _digest(*((one.st_ino, one.st_size, one.st_mtime_ns) for one in found))
    # The names as they were given, too: a row's suite is the folder that its file was named with.
    names = _digest(*files, *(real_path(file) for file in files))
    return _folder() / f"{names}-{made_by}-{state}.parquet"


def keep(con: "DuckDBPyConnection", table: str, place: Path) -> None:
    """Write the table there, whole or not at all, and replace the earlier one; a full disk keeps nothing."""
    import duckdb

    fresh = place.with_suffix(f".{os.getpid()}")
    with suppress(OSError, duckdb.IOException):
        place.parent.mkdir(parents=True, exist_ok=True)
        con.execute(f"copy {table} to '{_quoted(fresh)}' (format parquet)")
        os.replace(fresh, place)
        before = place.name.rpartition("-")[0]
        for old in place.parent.glob(f"{before}-*.parquet"):
            if old != place:
                old.unlink(missing_ok=True)
    with suppress(OSError):
        fresh.unlink(missing_ok=True)


def read_kept(con: "DuckDBPyConnection", table: str, place: Path) -> bool:
    """Make `table` from the kept rows; returns whether they are there, and whole."""
    import duckdb

    if not place.exists():
        return False
    try:
        con.execute(f"create or replace temp table {table} as select * from read_parquet('{_quoted(place)}')")
    except duckdb.Error:  # torn by a crash of the system, or gone: the records are read again
        return False
    return True


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qbench" / "rows"


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(tuple(map(str, parts))).encode()).hexdigest()[:16]
