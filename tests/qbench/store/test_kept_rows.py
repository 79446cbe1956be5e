"""Kept rows of large records are never used after the records changed."""

import os
import time

import pandas as pd
import pytest
from support.sample_records import make_record, sweep_records, write_records

from qbench.store import kept_rows, load_records

LONG_AGO = 1_700_000_000  # seconds of the epoch


@pytest.fixture
def records(tmp_path, monkeypatch):
    """A file of a sweep that is large enough, and was written long ago."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(kept_rows, "LEAST_BYTES", 1)
    return settled(write_records(tmp_path / "quickstart" / "records.jsonl", sweep_records()))


@pytest.fixture(autouse=True)
def folder(tmp_path):
    (tmp_path / "quickstart").mkdir()


def settled(path, when: int = LONG_AGO):
    os.utime(path, (when, when))
    return path


def kept(tmp_path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "caches").rglob("*"))


def test_the_same_rows_and_types_without_a_look_at_the_records(records, monkeypatch, tmp_path):
    first = load_records(records)
    assert len([name for name in kept(tmp_path) if name.endswith(".parquet")]) == 1

    def create_results(*_) -> None:
        raise AssertionError("the records were parsed again")

    monkeypatch.setattr("qbench.store.load.create_results", create_results)
    pd.testing.assert_frame_equal(load_records(records), first)


@pytest.mark.parametrize("when", [LONG_AGO, LONG_AGO + 60], ids=["in the same moment", "later"])
def test_a_row_more_is_seen(records, when):
    before = len(load_records(records))
    with open(records, "a") as file:
        file.write(write_records(records.with_suffix(".more"), [make_record("q8_0", model="other")]).read_text())
    assert len(load_records(settled(records, when))) == before + 1


def test_other_text_of_the_same_length_is_seen(records):
    assert "q8_0" in set(load_records(records)["recipe"])
    records.write_text(records.read_text().replace('"q8_0"', '"q9_9"'))
    assert "q9_9" in set(load_records(settled(records, LONG_AGO + 1))["recipe"])


def test_one_file_a_set_of_records_is_kept(records, tmp_path):
    for when in range(LONG_AGO, LONG_AGO + 3):
        load_records(settled(records, when))
    assert len(kept(tmp_path)) == 3  # with its two folders


def test_recently_written_files_are_not_kept(records, tmp_path):
    load_records(settled(records, int(time.time())))
    assert kept(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"PAR1 torn"], ids=["empty", "torn"])
def test_torn_files_are_made_again(records, tmp_path, content):
    first = load_records(records)
    (path,) = (tmp_path / "caches").rglob("*.parquet")
    path.write_bytes(content)
    pd.testing.assert_frame_equal(load_records(records), first)
    assert path.read_bytes() != content


def test_a_folder_that_cannot_be_written_keeps_nothing_and_loses_nothing(records, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(load_records(records)) == len(sweep_records())


def test_small_files_are_not_kept(records, tmp_path, monkeypatch):
    monkeypatch.setattr(kept_rows, "LEAST_BYTES", 2**24)
    load_records(records)
    assert kept(tmp_path) == []
