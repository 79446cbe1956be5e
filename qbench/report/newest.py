"""The records behind the rows of a table, newest first; only the requested parts are read."""

import heapq
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.measure.records.record import Record, line_of, parse_record
from qbench.measure.records.record_files import record_files
from qbench.store.load import Paths
from quant.regular_file import open_regular

if TYPE_CHECKING:
    import pandas as pd


def newest_records(frame: "pd.DataFrame", paths: Paths) -> Iterator[tuple[int, bytes]]:
    """(row of `frame`, its record as a line of JSON), read from the ends of the files as far as it is asked for.

    frame    of `load_records(paths)`
    """
    # As lists: pandas gives its texts one by one at a tenth of the speed.
    identity = zip(*(frame[name].tolist() for name in ("key", "machine", "time")), strict=True)
    rows = {found: row for row, found in enumerate(identity)}
    # Rows are appended as they are measured, so each file is in the order of time.
    files = [_records_from_the_end(path) for path in record_files(paths)]
    for record in heapq.merge(*files, key=lambda record: record.time, reverse=True):
        row = rows.pop((record.key, record.machine.id, record.time), None)
        if row is not None:
            yield row, line_of(record).rstrip(b"\n")


def _records_from_the_end(path: Path) -> Iterator[Record]:
    """The records of a file, last first; invalid lines were reported when the table was made."""
    with open_regular(path) as file:
        if not file.seek(0, 2):
            return  # nothing can be mapped
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            end = len(text)
            while end > 0:
                start = text.rfind(b"\n", 0, end) + 1
                record = parse_record(text[start:end])
                if record is not None:
                    yield record
                end = start - 1
