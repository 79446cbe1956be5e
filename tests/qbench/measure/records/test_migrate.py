"""Rows of schema 1 as they were written, one of each kind, shortened if long."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.documents import latest_records, read_records

from qbench.measure.records.migrate import MIGRATIONS, SCHEMA_VERSION, identity_of, migrate
from qbench.measure.records.record import keep_records
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
        assert old["schema_version"] == 1 and new["schema_version"] == SCHEMA_VERSION
        apart = {"schema_version", "case", "metrics"}
        assert {key: new[key] for key in new.keys() - apart} == {key: old[key] for key in old.keys() - apart}
        assert new == migrate(old)
        assert len(new["case"]) == len(old["case"]) and len(new["metrics"] or ()) == len(old["metrics"] or ())


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
    monkeypatch.setattr("qbench.measure.records.migrate.SCHEMA_VERSION", 4)
    steps = {1: lambda row: row | {"a": 1}, 2: lambda row: row | {"b": row["a"] + 1}, 3: lambda row: row | {"a": 9}}
    monkeypatch.setattr("qbench.measure.records.migrate.MIGRATIONS", steps)
    assert migrate({"schema_version": 1}) == {"schema_version": 4, "a": 9, "b": 2}
    with pytest.raises(KeyError):
        migrate({"schema_version": 0})


def of_schema_2(case: dict, metrics: dict | None = None) -> dict:
    return {"schema_version": 2, "case": case, "metrics": metrics}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"cache": "dense-f32"}, {"kv_format": "f32"}),
        ({"cache": "kv-int8", "products": "auto"}, {"kv_format": "kv-int8", "compute": "fast"}),
        ({"cache_kind": "dynamic"}, {"cache": "dynamic"}),
        ({"cache_kind": "paged"}, {"cache": "paged"}),
        ({"cache_kind": "window"}, {"policy": "window"}),
        ({"cache_kind": "window:256"}, {"policy": "window:256"}),
        ({"cache_kind": "window:1020+4"}, {"policy": "sinks:4+1020"}),
        ({"kind": "again", "of": "a1", "cache": None}, {"kind": "again", "of": "a1", "kv_format": None}),
        ({"kind": "plan", "cache": "window:64"}, {"kind": "plan", "cache": "dynamic", "policy": "window:64"}),
        (
            {"kind": "plan", "cache": "none", "kv": None},
            {"kind": "plan", "cache": "none", "policy": "full", "kv_format": None},
        ),
        ({"kind": "mla", "kv": "kv-f16", "plan": "elided"}, {"kind": "mla", "kv_format": "kv-f16", "mode": "elided"}),
        ({"kind": "kernel", "cache": "x"}, {"kind": "kernel", "cache": "x"}),
    ],
    ids=str,
)
def test_a_case_in_todays_words_and_back(old, new):
    assert migrate(of_schema_2(old))["case"] == new
    assert identity_of(new) == old


@pytest.mark.parametrize(
    "old, new",
    [
        ({"kv": None}, {"kv_format": None}),
        ({"products": "exact"}, {"compute": "exact"}),
        ({"ceilings": {"cache_bytes": 1}}, {"machine_peaks": {"cache_bytes": 1}}),
        ({"ceilings_seconds": 2.0}, {"machine_peaks_seconds": 2.0}),
        ({"cache_kind": "window:9"}, {"policy": "window:9"}),
        ({"cache_bytes": 3}, {"kv_bytes_held": 3}),
        ({"predicted_bytes": {"kv": 4}}, {"predicted_bytes": {"kv": 4}}),
        ({"protocol": {"name": "p", "products": "exact"}}, {"protocol": {"name": "p", "compute": "exact"}}),
        (
            {"tasks": {"t": {"protocol": {"products": "float32"}}}},
            {"tasks": {"t": {"protocol": {"compute": "float32"}}}},
        ),
        ({"protocols": {"p": {"protocol": {"name": "p"}}}}, {"protocols": {"p": {"protocol": {"name": "p"}}}}),
        ({"llama.cpp": {"kv": "f16"}}, {"llama.cpp": {"kv_format": "f16"}}),
    ],
    ids=str,
)
def test_metrics_in_todays_words(old, new):
    assert migrate(of_schema_2({}, old))["metrics"] == new


def test_a_row_with_an_unknown_cache_is_not_a_record(tmp_path, capsys):
    old = raw()[0]
    file = tmp_path / "r.jsonl"
    file.write_text(json.dumps(old | {"case": old["case"] | {"cache_kind": "most"}}) + "\n")
    assert list(read_records(file)) == [] and "skipped a line" in capsys.readouterr().err


def of_blocks(number: int, **intervals: Any) -> dict:
    return {"num_windows": number, "blocks": {"tokens": number * [10]}, **intervals}


@pytest.mark.parametrize(
    "old, new",
    [
        (of_blocks(7, kld_interval=[1.0, 2.0]), of_blocks(7, kld_interval=None)),
        (of_blocks(8, kld_interval=[1.0, 2.0]), of_blocks(8, kld_interval=[1.0, 2.0])),
        (of_blocks(12, kld_interval=[0.0, 4.8]), of_blocks(12, kld_interval=None)),
        (of_blocks(12, kld_interval=[0.0, 0.0]), of_blocks(12, kld_interval=[0.0, 0.0])),
        (of_blocks(7, perplexity_interval=[1.0, 2.0]), of_blocks(7, perplexity_interval=None)),
        ({"num_windows": 4, "kld_interval": [1.0, 2.0]}, {"num_windows": 4, "kld_interval": None}),
        ({"kld_interval": [1.0, 2.0]}, {"kld_interval": [1.0, 2.0]}),
        (of_blocks(4, kld_interval="text"), of_blocks(4, kld_interval="text")),
        (
            {"protocols": {"p": of_blocks(4, kld_interval=[1, 2])}},
            {"protocols": {"p": of_blocks(4, kld_interval=None)}},
        ),
    ],
    ids=str,
)
def test_intervals_that_are_too_narrow_are_left_out(old, new):
    assert migrate({"schema_version": 3, "case": {}, "metrics": old})["metrics"] == new
