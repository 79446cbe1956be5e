"""Stale rows of records: found by rule, removed whole."""

import json

import pytest
from support.measured_twice import measured, second
from support.sample_records import write_records

from checks import records

EARLY, LATE = "2026-01-01T00:00:00.000+00:00", "2026-01-02T00:00:00.000+00:00"


@pytest.fixture
def root(tmp_path):
    """A folder with results of every kind: (folder, rows that must stay)."""
    old, new, other = measured("q8_0"), measured("q8_0"), measured("q4_0")
    old |= {"time": EARLY, "code": "old"}
    again, orphan = second(new, 1.01), second(other, 1.01) | {"key": "orphan", "code": "old"}
    dirty = measured("bf16") | {"dirty": True}
    new["time"], new["case"]["window"] = LATE, None  # a key that is null in one of the rows and absent in the other
    gates = [{**other, "key": f"gate{n}", "case": {"kind": "gate", "suite": "ci", "baseline": "x"}} for n in range(2)]
    for gate in gates:
        gate["case"]["baseline_commit"] = [None, None]
        gate["metrics"] = {"red": False, "failed": {}, "not_checked": [], "checks": []}
    stay = [new, again, other, *gates]
    (tmp_path / "results" / "suite").mkdir(parents=True)
    write_records(tmp_path / "results" / "suite" / "m.jsonl", [old, dirty, orphan, *stay])
    return tmp_path, stay


def test_stale_rows_are_reported_and_left(root, capsys):
    folder, _ = root
    path = folder / "results" / "suite" / "m.jsonl"
    before = path.read_bytes()
    assert records.main([], folder) == 1 and path.read_bytes() == before
    error = capsys.readouterr().err
    assert f"results/suite/m.jsonl:1: measured again at {LATE}; 3 stale rows" in error and "--remove" in error


def test_they_are_removed_and_all_others_stay_byte_for_byte(root):
    folder, stay = root
    assert records.main(["--remove"], folder) == 0 and records.main([], folder) == 0
    lines = (folder / "results" / "suite" / "m.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == [row["key"] for row in stay]


def test_the_rows_of_this_checkout_are_not_stale():
    assert records.main([]) == 0
