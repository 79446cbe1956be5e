import os
from pathlib import Path

import pytest
from support.documents import append_record, make_record, read_files

from qbench.measure.records.record import MOST_NAMED, keep_records
from qbench.measure.records.record_files import check_writable, kept_file, make_folder, record_files
from quant.errors import InputError


def record(number: int, machine: str = "m1") -> dict:
    row = make_record({"kind": "number", "number": number}, {"perplexity": 1.5})
    return row | {"machine": row["machine"] | {"id": machine}}


def numbers(*paths) -> list[int]:
    return [row["case"]["number"] for row in read_files(paths)]


def test_a_folder_means_its_files_by_name_and_no_file_comes_twice(tmp_path):
    for name, number in (("b/m.jsonl", 2), ("a/m.jsonl", 1), ("c.jsonl", 3)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        append_record(tmp_path / name, record(number))
    (tmp_path / "a" / "report.md").write_text("no records")
    assert numbers(tmp_path) == [1, 2, 3]
    assert numbers(tmp_path / "c.jsonl", tmp_path) == [3, 1, 2]
    os.symlink(tmp_path / "c.jsonl", tmp_path / "d.jsonl")
    assert numbers(tmp_path) == [1, 2, 3]


def test_a_link_to_itself_cannot_be_read(tmp_path):
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    for path in (tmp_path / "loop.jsonl", tmp_path):
        with pytest.raises(InputError, match=r"Too many levels of symbolic links|no \.jsonl file"):
            numbers(path)


def test_a_folder_without_records_is_reported(tmp_path):
    with pytest.raises(InputError, match=r"no \.jsonl file"):
        record_files(tmp_path)


def test_each_machine_has_its_own_file(tmp_path):
    source = tmp_path / "run" / "records.jsonl"
    source.parent.mkdir()
    for row in (record(1), record(2, "m2"), record(3) | {"status": "error"}):
        append_record(source, row)
    kept = tmp_path / "results" / "suite"
    assert [keep_records(source.parent, kept) for _ in range(2)] == [2, 0]
    assert numbers(kept / "m1.jsonl") == [1] and numbers(kept / "m2.jsonl") == [2]
    assert sorted(os.listdir(kept)) == ["m1.jsonl", "m2.jsonl"]


@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "NaN"])
def test_a_row_with_a_number_that_json_lacks_is_skipped_and_named(tmp_path, capfd, value):
    for number in (1, 2):
        append_record(tmp_path / "r.jsonl", record(number))
    first, second = (tmp_path / "r.jsonl").read_text().splitlines()
    assert '"perplexity": 1.5' in second
    (tmp_path / "r.jsonl").write_text(f"{first}\n{second.replace('1.5', value)}\n")
    assert numbers(tmp_path / "r.jsonl") == [1]
    assert "r.jsonl:2: skipped a line" in capfd.readouterr().err


def test_only_the_first_lines_that_are_no_records_are_named(tmp_path, capfd):
    (tmp_path / "r.jsonl").write_text("junk\n" * 500)
    assert numbers(tmp_path / "r.jsonl") == []
    told = capfd.readouterr().err.splitlines()
    assert len(told) == MOST_NAMED + 1 and told[-1].endswith(
        f"skipped {500 - MOST_NAMED} more lines that are no records"
    )


def test_rows_of_kernels_on_a_gpu_are_skipped_in_silence(tmp_path, capfd):
    kept = sorted((Path(__file__).parents[4] / "results" / "gpu").glob("*.jsonl"))
    assert kept and all(numbers(file) == [] for file in kept)
    assert capfd.readouterr().err == ""


def test_a_name_of_a_file_is_that_file(tmp_path):
    assert kept_file(tmp_path / "new.jsonl", "m1") == tmp_path / "new.jsonl"
    (tmp_path / "rows").write_text("")
    assert kept_file(tmp_path / "rows", "m1") == tmp_path / "rows"
    with pytest.raises(InputError, match="cannot make the folder"):
        kept_file(tmp_path / "rows" / "suite", "m1")


def test_a_target_is_checked_without_leaving_anything(tmp_path):
    (tmp_path / "file").write_text("")
    for good in ("file", "new.jsonl", "new/folder", ".", "new/deep/file.jsonl"):
        check_writable(tmp_path / good)
    with pytest.raises(InputError, match=r"below.jsonl: cannot write there: .*file is no folder"):
        check_writable(tmp_path / "file" / "below.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_read_only_target_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for target in (tmp_path, tmp_path / "new.jsonl"):
        with pytest.raises(InputError, match=r"cannot write there: .*read-only; choose another"):
            check_writable(target)


def test_new_folders_are_on_the_disk_each_in_the_one_above(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr("qbench.measure.records.record_files.fsync", flushed.append)
    make_folder(tmp_path / "a" / "b")
    assert flushed == [tmp_path, tmp_path / "a"] and (tmp_path / "a" / "b").is_dir()
    make_folder(tmp_path / "a" / "b")
    assert len(flushed) == 2
