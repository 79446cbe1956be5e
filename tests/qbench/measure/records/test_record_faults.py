"""Writers that meet each other, a full disk, or their end: no row is lost or duplicated."""

import errno
import json
import multiprocessing
import os
import random
import resource
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from support.documents import append_record, make_record, read_records

from qbench.measure.records import line_file
from qbench.measure.records.record import keep_records
from quant.errors import InputError

FORK = multiprocessing.get_context("fork")
LONG = "x" * 100_000  # a row longer than a page and a pipe's buffer, so that a kill can fall into its writing


def record(number: int, padding: str = "") -> dict:
    return make_record({"kind": "number", "number": number}, {"padding": padding})


def numbers(path: Path) -> list[int]:
    return [row["case"]["number"] for row in read_records(path)]


def run_all(*targets) -> None:
    """Each (function, arguments...) in a process of its own, all at once."""
    processes = [FORK.Process(target=function, args=arguments) for function, *arguments in targets]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0


def write_many(path: Path, start: int) -> None:
    for number in range(start, start + 40):
        append_record(path, record(number, LONG))


def test_two_writers_at_once_lose_and_mix_nothing(tmp_path):
    run_all((write_many, tmp_path / "r.jsonl", 0), (write_many, tmp_path / "r.jsonl", 100))
    assert sorted(numbers(tmp_path / "r.jsonl")) == [*range(40), *range(100, 140)]


def read_often(path: Path) -> None:
    """A reader meanwhile sees whole rows alone: it would name a torn one, and end with it as its status."""
    counts = [0]
    while counts[-1] < 40:
        counts.append(len(numbers(path)) if path.exists() else 0)
        lines = line_file.read_lines(path) if path.exists() else [b""]
        assert lines[-1] == b""  # the last line has its end
    assert counts == sorted(counts)


def test_a_reader_meanwhile_sees_no_half_row(tmp_path, capfd):
    run_all((write_many, tmp_path / "r.jsonl", 0), (read_often, tmp_path / "r.jsonl"))
    assert "skipped" not in capfd.readouterr().err


def test_two_that_keep_the_same_rows_keep_them_once(tmp_path):
    write_many(tmp_path / "run.jsonl", 0)
    run_all(*[(keep_records, tmp_path / "run.jsonl", tmp_path / "kept.jsonl")] * 3)
    assert numbers(tmp_path / "kept.jsonl") == list(range(40))


def write_until_full(path: Path) -> None:
    """In a process whose files may have three rows and a half, as on a disk that fills up."""
    length = len(json.dumps(record(0, LONG)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (length * 7 // 2, resource.RLIM_INFINITY))
    for number in range(3):
        append_record(path, record(number, LONG))
    for number in (3, 4):
        with pytest.raises(InputError, match="the disk is full; free some space"):
            append_record(path, record(number, LONG))
    append_record(path, record(5))  # a short one still fits
    with pytest.raises(InputError, match="the disk is full"):
        keep_records(path.parent / "run.jsonl", path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    append_record(path, record(6, LONG))


def test_a_full_disk_takes_only_whole_rows(tmp_path, capfd):
    for number in (7, 8):
        append_record(tmp_path / "run.jsonl", record(number, LONG))
    run_all((write_until_full, tmp_path / "r.jsonl"))
    assert numbers(tmp_path / "r.jsonl") == [0, 1, 2, 5, 6] and "skipped" not in capfd.readouterr().err
    assert keep_records(tmp_path / "run.jsonl", tmp_path / "r.jsonl") == 2
    assert numbers(tmp_path / "r.jsonl") == [0, 1, 2, 5, 6, 7, 8]


@pytest.mark.parametrize("torn", [b"", b'{"key": "to'], ids=["whole", "torn before"])
def test_a_row_that_did_not_reach_the_disk_is_not_there(tmp_path, monkeypatch, torn):
    """Some file systems report a full disk only at a flush."""
    path = tmp_path / "r.jsonl"
    append_record(path, record(1))
    path.write_bytes(path.read_bytes() + torn)
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match="the disk is full"):
        append_record(path, record(2))
    monkeypatch.undo()
    assert path.read_bytes() == before
    append_record(path, record(2))
    assert numbers(path) == [1, 2]


def test_a_new_file_is_in_its_folder_before_the_row_counts(tmp_path, monkeypatch):
    flushed = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (flushed.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd)))
    append_record(tmp_path / "r.jsonl", record(1))
    append_record(tmp_path / "r.jsonl", record(2))
    file = str(tmp_path / "r.jsonl")
    assert flushed == [file, str(tmp_path), file]


def go_on(path: Path, start: int, until: int, told) -> None:
    """Append the rows from `start` on that are not there yet, telling each as it is done."""
    held = set(numbers(path)) if path.exists() else set()
    for number in range(start, until):
        if number not in held:
            append_record(path, record(number, LONG))
            os.write(told, b"%d\n" % number)


def killed_once(targets, rows: int, delay: float) -> tuple[bool, list[int]]:
    """Starts the processes and kills them a moment after they reported this many rows.

    returns  whether any was killed before its end, and the numbers that they reported
    """
    reader, writer = os.pipe()
    processes = [FORK.Process(target=function, args=(*arguments, writer)) for function, *arguments in targets]
    for process in processes:
        process.start()
    os.close(writer)
    with os.fdopen(reader) as file:
        lines = [line for _, line in zip(range(rows), file, strict=False)]
        time.sleep(delay)
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        for process in processes:
            process.join()
        lines += file.readlines()
    return any(process.exitcode for process in processes), [int(line) for line in lines]


def seconds_of(*targets) -> float:
    """The least of three times of `run_all`: a kill within it falls into the work on however busy a machine."""
    times = []
    for number in range(3):
        start = time.perf_counter()
        run_all(*((function, *arguments(number)) for function, arguments in targets))
        times.append(time.perf_counter() - start)
    return min(times)


def test_killed_at_any_moment_no_row_is_lost_or_doubled(tmp_path):
    path, rng = tmp_path / "r.jsonl", random.Random(11)
    a_row = seconds_of((write_many, lambda number: (tmp_path / f"{number}.jsonl", 0))) / 40
    told, kills, going = [], 0, True
    while going:
        targets = [(go_on, path, 0, 30), (go_on, path, 100, 130)]
        going, numbers_told = killed_once(targets, rng.randrange(12), rng.uniform(0, 2 * a_row))
        kills += going
        told += numbers_told
    found = Counter(numbers(path))
    assert kills >= 3
    assert found == Counter([*range(30), *range(100, 130)])
    assert set(told) <= set(found) and len(told) == len(set(told))


def keep(path: Path, kept: Path, told) -> None:
    keep_records(path, kept)


def test_keeping_that_is_killed_keeps_each_row_once_in_the_end(tmp_path):
    path, kept, rng = tmp_path / "run.jsonl", tmp_path / "kept.jsonl", random.Random(5)
    write_many(path, 0)
    whole = seconds_of((keep_records, lambda number: (path, tmp_path / f"{number}.jsonl")))
    # The time of the whole counts a process's start, which a large parent makes long: not every kill finds it at work.
    kills, delays = 0, (rng.uniform(0, whole) for _ in range(200))
    while kills < 6 and (delay := next(delays, None)) is not None:
        kills += killed_once([(keep, path, kept)], 0, delay)[0]
    keep_records(path, kept)
    assert kills == 6 and numbers(kept) == list(range(40))
