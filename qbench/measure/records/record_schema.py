"""The shape of a record by version: an old one is read as if it had been written today."""

from collections.abc import Callable
from typing import Any

Record = dict[str, Any]

SCHEMA_VERSION = 2


def add_blocks_and_tasks(record: Record) -> Record:
    """Schema 2 adds sums by block, every protocol of a run, tasks and energy, each absent where it was not measured.

    All that an old row has keeps its name and its place, and what it never measured stays absent.
    """
    return record


# schema -> what makes a record of the next one of it; 2 only adds, so that it leaves a row as it is
MIGRATIONS: dict[int, Callable[[Record], Record]] = {1: add_blocks_and_tasks}


def migrate(record: Record) -> Record:
    """The record in today's schema. raises KeyError for a schema that never was"""
    while record["schema_version"] < SCHEMA_VERSION:
        version = record["schema_version"]
        record = MIGRATIONS[version](record) | {"schema_version": version + 1}
    return record
