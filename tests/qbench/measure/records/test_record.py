import json

import pytest
from support.documents import append_record, case_key, latest_records, make_record, read_records

from qbench.measure.records import record as records
from qbench.measure.records.migrate import SCHEMA_VERSION
from quant.errors import InputError


def record(number: int) -> dict:
    return make_record({"model": "rand:tiny", "recipe": "q8_0", "number": number}, {"perplexity": 1.5})


def numbers(path) -> list[int]:
    return [row["case"]["number"] for row in read_records(path)]


def test_a_row_has_all_facts_that_judge_it(tmp_path):
    append_record(tmp_path / "r.jsonl", record(1))
    (row,) = read_records(tmp_path / "r.jsonl")
    assert row["status"] == "ok" and row["metrics"] == {"perplexity": 1.5}
    assert row["machine"]["id"] and row["machine"]["cores"] >= 1 and row["versions"]["torch"]
    assert {"commit", "dirty", "code", "time", "schema_version"} <= row.keys()


def test_a_row_names_the_code_that_measured_and_not_the_one_that_writes():
    """A worker that started after an edit ran other code than the sweep that wrote its row."""
    row = make_record({"model": "rand:tiny"}, {"perplexity": 1.5, "commit": "c", "dirty": True, "code": "edited"})
    assert (row["commit"], row["dirty"], row["code"]) == ("c", True, "edited")


def test_key_depends_only_on_the_case():
    case, turned, other = {"model": "m", "a": 1, "b": 2}, {"b": 2, "a": 1, "model": "m"}, {"model": "m", "a": 1, "b": 3}
    first, second = make_record(case, {"x": 1}), make_record(turned, None, "it broke")
    assert first["key"] == second["key"] == case_key(case) != case_key(other)
    assert second["status"] == "error" and second["error"] == "it broke"


def test_a_row_is_the_latest_of_its_case_though_the_clock_was_set_back(tmp_path):
    path, times = tmp_path / "r.jsonl", ("2026-05-01", "2020-01-01", "2020-01-02", "2027-01-01")
    for number, day in enumerate(times):
        append_record(path, record(1) | {"time": f"{day}T00:00:00.000+00:00", "error": f"run {number}"})
        append_record(path, record(2) | {"time": "2019-01-01T00:00:00.000+00:00"})  # its clock is its own
    rows = [row for row in read_records(path) if row["case"]["number"] == 1]
    assert [row["error"] for row in sorted(rows, key=lambda row: row["time"])] == [f"run {i}" for i in range(4)]
    assert [row["time"][:19] for row in rows] == ["2026-05-01T00:00:00"] * 3 + ["2027-01-01T00:00:00"]
    (newest,) = (row for row in latest_records(path).values() if row["case"]["number"] == 1)
    assert newest["error"] == "run 3"
    assert next(row for row in read_records(path) if row["case"]["number"] == 2)["time"].startswith("2019-01-01")


# In the order of the moments, which their texts are not in.
FOREIGN = ("2026-05-01T14:00:00+09:00", "2026-05-01T05:00:00.5Z", "2026-05-01T05:00:01", "2026-05-01T04:00:02-02:00")


def test_rows_are_ordered_by_time_in_any_format(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(record(1) | {"time": time}) + "\n" for time in reversed(FOREIGN)))
    times = [row["time"] for row in read_records(path)]
    assert times == sorted(times, reverse=True) and times[-1] == "2026-05-01T05:00:00+00:00"
    (newest,) = latest_records(path).values()
    assert newest["time"] == "2026-05-01T06:00:02+00:00"
    append_record(path, record(1) | {"time": "2026-05-01T06:00:01.000+00:00"})  # its clock was set back
    assert [row["time"] for row in read_records(path)][-1] == "2026-05-01T06:00:02.001+00:00"


@pytest.mark.parametrize("time", ["2026-13-45T00:00:00", "9999-12-31T23:59:59.999+00:00"])
def test_a_row_of_an_impossible_time_hinders_no_other(tmp_path, time):
    for number in (1, 1, 2):
        append_record(tmp_path / "r.jsonl", record(number) | {"time": time})
    assert numbers(tmp_path / "r.jsonl") == [1, 1, 2]


def test_records_of_other_machines_are_skipped_unread(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    for number in range(3):
        append_record(path, record(number))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    here = rows[0]["machine"]["id"]
    rows[1]["machine"]["id"] = "elsewhere"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = []
    monkeypatch.setattr(
        records, "parse_record", lambda line, parse=records.parse_record: read.append(line) or parse(line)
    )
    assert [row.machine.id for row in records.read_records(path, {here})] == [here, here] and len(read) == 2
    assert len(list(records.read_records(path))) == 3 and not list(records.read_records(path, set()))


@pytest.mark.parametrize("cut", [1, 20, 400])
def test_a_torn_last_line_is_named_skipped_and_closed_off(tmp_path, capsys, cut):
    path = tmp_path / "r.jsonl"
    append_record(path, record(1))
    append_record(path, record(2))
    whole = path.read_bytes()
    path.write_bytes(whole[: -1 - cut])
    assert numbers(path) == [1]
    assert f"{path}:2" in capsys.readouterr().err
    append_record(path, record(3))
    assert numbers(path) == [1, 3]


def test_a_whole_row_that_lost_only_its_newline_counts(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    append_record(path, record(1))
    path.write_bytes(path.read_bytes()[:-1])
    append_record(path, record(2))
    assert numbers(path) == [1, 2] and not capsys.readouterr().err


@pytest.mark.parametrize("junk", [b"null\n", b"[1]\n", b'{"a": 1}\n', b"\xff\xfe\n", b"\n"])
def test_junk_between_rows_costs_no_row(tmp_path, junk):
    path = tmp_path / "r.jsonl"
    append_record(path, record(1))
    with open(path, "ab") as file:
        file.write(junk)
    append_record(path, record(2))
    assert numbers(path) == [1, 2]


@pytest.mark.parametrize("metrics", [[1], "x", 7, {"kld": "x"}, {"tasks": [1]}], ids=repr)
def test_a_value_in_place_of_a_mapping_makes_no_record(tmp_path, capsys, metrics):
    write_line(tmp_path / "r.jsonl", metrics=metrics)
    assert numbers(tmp_path / "r.jsonl") == [] and "r.jsonl:1: skipped" in capsys.readouterr().err


def write_line(path, **changes) -> None:
    path.write_text(json.dumps(record(1) | changes) + "\n")


def test_a_newer_schema_is_refused(tmp_path):
    write_line(tmp_path / "r.jsonl", schema_version=99)
    with pytest.raises(InputError, match=f"r.jsonl:1: record of schema 99, this qbench knows {SCHEMA_VERSION}"):
        list(read_records(tmp_path / "r.jsonl"))


@pytest.mark.parametrize("schema", [0, -1, "1", 1.5, True, None], ids=repr)
def test_a_schema_that_never_was_makes_no_record(tmp_path, capsys, schema):
    write_line(tmp_path / "r.jsonl", schema_version=schema)
    assert numbers(tmp_path / "r.jsonl") == [] and "r.jsonl:1: skipped" in capsys.readouterr().err


def test_two_rows_of_a_second_are_two():
    first, second = record(1), record(1)
    assert len(first["time"]) == len("2026-01-01T00:00:00.000+00:00")
    while second["time"] == first["time"]:
        second = record(1)
    assert second["time"] > first["time"] and second["key"] == first["key"]


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot read records"):
        list(read_records(tmp_path / "absent.jsonl"))


def test_a_number_that_json_cannot_hold_writes_nothing(tmp_path):
    with pytest.raises(ValueError):
        append_record(tmp_path / "r.jsonl", make_record({"model": "m"}, {"perplexity": float("inf")}))
    assert not (tmp_path / "r.jsonl").exists()
