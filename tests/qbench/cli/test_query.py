import csv
import io
import json

import pytest
from support.sample_records import make_record, write_records


@pytest.fixture
def records(tmp_path):
    tasks = {"blimp": {"metric": "acc", "value": 0.75}}
    rows = [make_record("bf16", tasks=tasks), make_record("q4_0", perplexity=None)]
    return write_records(tmp_path / "r.jsonl", rows)


SQL = "select recipe, perplexity, size_bytes, tasks from results order by recipe"


def test_a_table_for_people(qbench, records):
    outcome = qbench("query", SQL.replace(", tasks", ""), "--records", records)
    assert outcome.status == 0
    assert outcome.out.splitlines() == [
        "| recipe | perplexity | size_bytes |",
        "| ------ | ---------: | ---------: |",
        "| bf16   |      6.131 |    9700000 |",
        "| q4_0   |        n/a |    2728125 |",
    ]


def test_json_is_one_object_a_row(qbench, records):
    for option in (("--json",), ("--format", "json")):
        rows = [json.loads(line) for line in qbench("query", SQL, "--records", records, *option).out.splitlines()]
        assert [row["perplexity"] for row in rows] == [6.131, None]
        assert rows[0]["tasks"]["blimp"]["value"] == 0.75 and rows[1]["tasks"] is None
    sql = "select 'nan'::double as a, [1.5, 'inf'::double] as b, {'x': date '2026-01-01'} as c, 1.5::decimal(3, 2) as d"
    row = json.loads(qbench("query", sql, "--records", records, "--json").out)
    assert row == {"a": None, "b": [1.5, None], "c": {"x": "2026-01-01"}, "d": 1.5}


def test_csv_has_a_header_and_empty_cells(qbench, records):
    rows = list(csv.reader(io.StringIO(qbench("query", SQL, "--records", records, "--format", "csv").out)))
    assert rows[0] == ["recipe", "perplexity", "size_bytes", "tasks"] and rows[2] == ["q4_0", "", "2728125", ""]
    assert json.loads(rows[1][3])["blimp"]["metric"] == "acc"


def test_the_columns_are_listed(qbench, records):
    out = qbench("query", "--schema", "--records", records).out
    assert "| results | kld_mean " in out and "| records | metrics " in out


def test_bad_input_ends_in_one_line(qbench, records, tmp_path):
    qbench("query").fails_with("give either SQL or --schema")
    qbench("query", "select 1", "--schema").fails_with("give either SQL or --schema")
    qbench("query", "select x from results", "--records", records).fails_with('column "x" not found')
    qbench("query", "select 1", "--records", tmp_path / "absent").fails_with("absent: cannot read records")


def test_a_query_opens_no_file(qbench, records, tmp_path):
    """Neither the content of a file, nor its form, nor its existence can be learnt."""
    there, absent = tmp_path / "there.json", tmp_path / "absent.json"
    there.write_text("no JSON at all")
    outcomes = [
        qbench("query", f"{begin} {call}('{path}')", "--records", records)
        for begin in ("from", "select * from", "explain from")
        for call in ("read_json_auto", "read_csv", "read_text", "glob")
        for path in (there, absent)
    ]
    for one, other in zip(outcomes[::2], outcomes[1::2], strict=True):
        one.fails_with("disabled by configuration")
        assert one.err.replace(there.name, absent.name) == other.err
