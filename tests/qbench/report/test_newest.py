import json

import pytest
from support.sample_records import make_record, sweep_records, write_records

from qbench.report.write import newest_records
from qbench.store import load_records


def at(record: dict, minute: int) -> dict:
    return record | {"time": f"2026-01-01T00:{minute:02}:00"}


@pytest.mark.parametrize("end", ["", "\n", '\n{"torn": '], ids=["no last newline", "whole", "torn"])
def test_each_row_has_its_record_the_newest_first(tmp_path, end):
    first = [at(record, 2 * i) for i, record in enumerate(sweep_records())]
    again = at(make_record("q8_0", perplexity=7.0), 40)
    other = [at(make_record(recipe, machine="other"), 2 * i + 1) for i, recipe in enumerate(("bf16", "q4_0"))]
    write_records(tmp_path / "a.jsonl", [*first, again])
    write_records(tmp_path / "b.jsonl", other)
    (tmp_path / "empty.jsonl").touch()
    text = (tmp_path / "a.jsonl").read_text()
    (tmp_path / "a.jsonl").write_text(text.rstrip("\n") + end)

    frame = load_records(tmp_path)
    found = [(row, json.loads(line)) for row, line in newest_records(frame, tmp_path)]
    assert sorted(row for row, _ in found) == list(range(len(frame))), "each row once"
    times = [record["time"] for _, record in found]
    assert times == sorted(times, reverse=True) and found[0][1]["metrics"]["perplexity"] == 7.0
    for row, record in found:
        told = frame.loc[row, ["key", "machine", "time", "perplexity"]].tolist()
        assert told == [record["key"], record["machine"]["id"], record["time"], record["metrics"]["perplexity"]]


def test_a_copy_of_a_row_in_another_file_is_listed_once(tmp_path):
    for name in ("a", "b"):
        write_records(tmp_path / f"{name}.jsonl", [make_record("q8_0")])
    assert [row for row, _ in newest_records(load_records(tmp_path), tmp_path)] == [0]
