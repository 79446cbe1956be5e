"""Rows of schema 1 as they were written, one of each kind, shortened where they are long."""

import json
from pathlib import Path

import pytest
from support.documents import latest_records, read_records

from qbench.measure.records.record import keep_records
from qbench.measure.records.record_schema import MIGRATIONS, SCHEMA_VERSION, migrate
from qbench.store import load_records

FIXTURES = Path(__file__).parent / "schema_1.jsonl"


def raw() -> list[dict]:
    return [json.loads(line) for line in FIXTURES.read_text().splitlines()]


def test_every_older_schema_has_a_way_to_the_next():
    assert sorted(MIGRATIONS) == list(range(1, SCHEMA_VERSION))


def test_an_old_row_is_read_as_of_today_and_nothing_is_invented(tmp_path):
    rows = list(read_records(FIXTURES))
    assert [row["case"].get("kind") for row in rows] == [None, None, "kernel", "versus"]
    assert [row["status"] for row in rows] == ["ok", "error", "ok", "ok"]
    for old, new in zip(raw(), rows, strict=True):
        assert old["schema_version"] == 1 and new == old | {"schema_version": SCHEMA_VERSION}


def test_kept_rows_are_of_todays_schema(tmp_path):
    assert keep_records(FIXTURES, tmp_path) == 3
    (kept,) = tmp_path.iterdir()
    assert {json.loads(line)["schema_version"] for line in kept.read_text().splitlines()} == {SCHEMA_VERSION}
    assert keep_records(FIXTURES, tmp_path) == 0


def test_tables_hold_old_rows():
    frame = load_records(FIXTURES)
    assert frame["recipe"].tolist() == ["q4_0", "q8_0"] and frame["status"].tolist() == ["ok", "error"]
    assert frame["perplexity"].tolist()[0] == raw()[0]["metrics"]["perplexity"] and frame["tasks"].isna().all()
    assert len(latest_records(FIXTURES, kinds=("kernel", "versus"))) == 2


def test_a_chain_of_migrations_is_followed_to_its_end(monkeypatch):
    monkeypatch.setattr("qbench.measure.records.record_schema.SCHEMA_VERSION", 4)
    steps = {1: lambda row: row | {"a": 1}, 2: lambda row: row | {"b": row["a"] + 1}, 3: lambda row: row | {"a": 9}}
    monkeypatch.setattr("qbench.measure.records.record_schema.MIGRATIONS", steps)
    assert migrate({"schema_version": 1}) == {"schema_version": 4, "a": 9, "b": 2}
    with pytest.raises(KeyError):
        migrate({"schema_version": 0})
