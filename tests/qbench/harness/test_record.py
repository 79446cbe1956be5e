import json
import multiprocessing

import pytest

from qbench.harness.record import append_record, case_key, make_record, read_records
from quant.errors import InputError


def record(number: int) -> dict:
    return make_record({"model": "rand:tiny", "number": number}, {"perplexity": 1.5})


def numbers(path) -> list[int]:
    return [row["case"]["number"] for row in read_records(path)]


def test_a_row_says_what_it_takes_to_judge_it(tmp_path):
    append_record(tmp_path / "r.jsonl", record(1))
    (row,) = read_records(tmp_path / "r.jsonl")
    assert row["status"] == "ok" and row["metrics"] == {"perplexity": 1.5}
    assert row["machine"]["id"] and row["machine"]["cores"] >= 1 and row["versions"]["torch"]
    assert {"commit", "dirty", "code", "time", "schema_version"} <= row.keys()


def test_a_row_names_the_code_that_measured_and_not_the_one_that_writes():
    """A worker that started after an edit ran other code than the sweep that wrote its row."""
    row = make_record({"model": "rand:tiny"}, {"perplexity": 1.5, "commit": "c", "dirty": True, "code": "edited"})
    assert (row["commit"], row["dirty"], row["code"]) == ("c", True, "edited")


def test_key_is_of_the_case_alone():
    first, second = make_record({"a": 1, "b": 2}, {"x": 1}), make_record({"b": 2, "a": 1}, None, "it broke")
    assert first["key"] == second["key"] == case_key({"a": 1, "b": 2}) != case_key({"a": 1, "b": 3})
    assert second["status"] == "error" and second["error"] == "it broke"


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


def write_many(path, start):
    for number in range(start, start + 40):
        append_record(path, record(number) | {"padding": "x" * 20000})  # longer than a page and a pipe buffer


def test_two_writers_at_once_lose_and_mix_nothing(tmp_path):
    path = tmp_path / "r.jsonl"
    writers = [multiprocessing.get_context("fork").Process(target=write_many, args=(path, start)) for start in (0, 100)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(numbers(path)) == [*range(40), *range(100, 140)]


def test_a_newer_schema_is_refused(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(record(1) | {"schema_version": 99}) + "\n")
    with pytest.raises(InputError, match="schema 99"):
        list(read_records(path))


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot read records"):
        list(read_records(tmp_path / "absent.jsonl"))


def test_a_number_that_json_cannot_hold_writes_nothing(tmp_path):
    with pytest.raises(ValueError):
        append_record(tmp_path / "r.jsonl", make_record({}, {"perplexity": float("inf")}))
    assert not (tmp_path / "r.jsonl").exists()


def test_a_full_disk_leaves_the_old_rows(tmp_path, monkeypatch):
    import os

    path = tmp_path / "r.jsonl"
    append_record(path, record(1))
    before = path.read_bytes()
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, data[:10]))
    with pytest.raises(InputError, match="disk is full"):
        append_record(path, record(2))
    monkeypatch.undo()
    assert path.read_bytes() == before
