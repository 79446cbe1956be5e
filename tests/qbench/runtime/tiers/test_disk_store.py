"""Blocks in files, over damage, full disks, other processes and kills."""

import errno
import json
import logging
import os
import random
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qbench.runtime.tiers import block_file, disk_store
from qbench.runtime.tiers.aligned import READ_MODES, aligned_buffer, drop_from_page_cache, read_whole
from qbench.runtime.tiers.block_file import HEADER_BYTES, file_bytes
from qbench.runtime.tiers.block_store import BlockKey, BlockNote, CorruptBlock
from qbench.runtime.tiers.disk_store import DiskStore
from qbench.runtime.tiers.read_mode import fastest_read_mode
from qbench.runtime.tiers.store_identity import StoreIdentity
from quant.errors import InputError

BLOCK = 5000
IDENTITY = StoreIdentity("model", "kv-f16", "exact", "kernel-blocks-1", 16, BLOCK)
NOTE = BlockNote(1234.5, 0.25)
ROOT = b"r" * 16
PLENTY = 1 << 30


def key(number: int, root: bytes = ROOT) -> BlockKey:
    return BlockKey(root, number.to_bytes(16, "little"), number)


def block(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, BLOCK, dtype=np.uint8)


def open_store(folder: Path, max_bytes: int = PLENTY, **changes) -> DiskStore:
    return DiskStore(folder, replace(IDENTITY, **changes), max_bytes)


def got(store: DiskStore, number: int, root: bytes = ROOT) -> bool:
    """Whether the block is there; it is then the right one."""
    out = np.zeros(store.block_bytes, dtype=np.uint8)
    note = store.get(key(number, root), out)
    assert note in (None, NOTE)
    assert note is None or (out == block(number)).all()
    return note is not None


def fill(store: DiskStore, *numbers: int) -> None:
    for number in numbers:
        assert store.put(key(number), block(number), NOTE)


def blocks_of(folder: Path) -> list[Path]:
    return [path for path in folder.glob("qbench-kv*/*/*") if not path.name.startswith(".")]


@pytest.mark.parametrize("mode", READ_MODES)
def test_what_was_put_is_found_by_another_store_of_the_folder(tmp_path, mode):
    fill(open_store(tmp_path), 1, 2)
    store = open_store(tmp_path)
    store.read_mode = mode
    assert store.has(key(1)) and got(store, 1) and got(store, 2)
    assert not store.has(key(3)) and not got(store, 3)
    assert not store.has(key(1, b"other root      "))


def test_the_bytes_of_a_file(tmp_path):
    """Written by hand from the table in block_file.py."""
    fill(open_store(tmp_path), 3)
    (path,) = blocks_of(tmp_path)
    data = path.read_bytes()
    assert len(data) == 4096 + 8192
    assert data[:16] == b"QBKVBLK\0\1\0\0\0\3\0\0\0"
    assert data[16:32] == IDENTITY.space and data[32:48] == key(3).digest
    assert data[48:56] == BLOCK.to_bytes(8, "little")
    assert np.frombuffer(data[56:72], "<f8").tolist() == [1234.5, 0.25]
    assert data[4096 : 4096 + BLOCK] == block(3).tobytes()
    assert not any(data[88:4096]) and not any(data[4096 + BLOCK :])
    assert (path.name, path.parent.name) == (f"000003-{key(3).digest.hex()}", ROOT.hex())


@pytest.mark.parametrize("damage", ["flip", "cut", "grown", "empty", "zeros", "header", "renamed"])
def test_a_damaged_block_is_an_error_once_and_then_gone(tmp_path, damage):
    store = open_store(tmp_path)
    fill(store, 1, 2)
    path = Path(store.path_of(key(1)))
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[HEADER_BYTES + BLOCK // 2] ^= 4
    elif damage == "header":
        data[60] ^= 1
    elif damage == "cut":
        del data[-4096:]
    elif damage == "grown":
        data += bytes(4096)
    elif damage == "empty":
        data.clear()
    elif damage == "zeros":
        data = bytearray(len(data))
    path.write_bytes(Path(store.path_of(key(2))).read_bytes() if damage == "renamed" else data)
    with pytest.raises(CorruptBlock):
        got(store, 1)
    assert store.counts.corrupt_blocks == 1
    assert not store.has(key(1)) and not got(store, 1) and got(store, 2)
    fill(store, 1)
    assert got(store, 1)


@pytest.mark.parametrize("seed", range(4))
def test_no_flipped_bit_is_read(tmp_path, seed):
    store = open_store(tmp_path)
    draw = random.Random(seed)
    for number in range(20):
        fill(store, number)
        path = Path(store.path_of(key(number)))
        data, place = (
            bytearray(path.read_bytes()),
            draw.choice([draw.randrange(88), HEADER_BYTES + draw.randrange(BLOCK)]),
        )
        data[place] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        with pytest.raises(CorruptBlock):
            got(store, number)


@pytest.mark.parametrize(
    "change",
    [{"model": "other"}, {"kv_format": "kv-int8"}, {"compute": "fast"}, {"layout": "torch-rows-1"}, {"page_size": 32}],
    ids=lambda change: next(iter(change)),
)
def test_blocks_of_another_identity_are_reported_once_and_not_read(tmp_path, caplog, change):
    fill(open_store(tmp_path), 1, 2)
    with caplog.at_level(logging.WARNING):
        store = open_store(tmp_path, **change)
    assert not got(store, 1) and not got(store, 2)
    assert len(caplog.messages) == 1 and next(iter(change)) in caplog.messages[0]
    assert store.counts.corrupt_blocks == store.counts.errors == 0
    assert got(open_store(tmp_path), 1)


def test_blocks_of_another_version_are_reported_once_and_not_read(tmp_path, caplog, monkeypatch):
    for module in (block_file, disk_store):
        monkeypatch.setattr(module, "FORMAT", 2)
    fill(open_store(tmp_path), 1)
    monkeypatch.undo()
    with caplog.at_level(logging.WARNING):
        store = open_store(tmp_path)
    assert not got(store, 1)
    assert len(caplog.messages) == 1 and "version" in caplog.messages[0]


def test_a_file_of_another_identity_under_our_name_is_not_read(tmp_path):
    ours, theirs = open_store(tmp_path), open_store(tmp_path, model="other")
    fill(theirs, 1)
    path = Path(ours.path_of(key(1)))
    path.parent.mkdir()
    os.rename(theirs.path_of(key(1)), path)
    with pytest.raises(CorruptBlock):
        got(ours, 1)


def test_the_folder_stays_within_its_limit_and_the_least_recently_used_go(tmp_path):
    limit = 20 * file_bytes(BLOCK)
    store = open_store(tmp_path, limit)
    for number in range(60):
        fill(store, number)
        _set_time(store, number, number)
        if number == 10:
            store.touch([key(0)])
            assert Path(store.path_of(key(0))).stat().st_mtime > number
        assert sum(path.stat().st_size for path in blocks_of(tmp_path)) <= limit
    assert got(store, 59) and got(store, 0) and not got(store, 1)
    assert store.counts.evicted_blocks >= 40


def test_of_a_chain_the_last_blocks_are_evicted_first(tmp_path):
    store = open_store(tmp_path, 20 * file_bytes(BLOCK))
    fill(store, *range(18))
    for number in range(18):
        _set_time(store, number, 5)
    assert store.put(key(1, b"x" * 16), block(1), NOTE)
    left = [number for number in range(18) if store.has(key(number))]
    assert left == list(range(len(left))) and len(left) < 18


def test_blocks_of_others_are_evicted_too(tmp_path):
    limit = 10 * file_bytes(BLOCK)
    fill(open_store(tmp_path, limit, model="other"), *range(9))
    store = open_store(tmp_path, limit)
    fill(store, *range(9))
    assert sum(path.stat().st_size for path in blocks_of(tmp_path)) <= limit
    assert got(store, 8)


def test_a_limit_without_room_names_the_least(tmp_path):
    least = int(file_bytes(BLOCK) / 0.9) + 1
    with pytest.raises(InputError, match=f"give at least {least}"):
        open_store(tmp_path, 5000)
    fill(open_store(tmp_path, least), 1)


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        open_store(tmp_path / "file")


def test_deleting_a_version_leaves_the_others(tmp_path):
    store, other = open_store(tmp_path), b"o" * 16
    fill(store, 1, 2)
    assert store.put(key(1, other), block(1), NOTE)
    store.delete(ROOT)
    store.delete(b"never there     ")
    assert not got(store, 1) and not got(store, 2) and got(store, 1, other)
    assert len(blocks_of(tmp_path)) == 1
    fill(store, 1)
    assert got(open_store(tmp_path), 1)


def test_a_full_disk_is_said_once_and_reads_go_on(tmp_path, monkeypatch, caplog):
    """The write is refused half way."""
    store = open_store(tmp_path)
    fill(store, 1)
    writev = os.writev

    def full(descriptor, parts):
        writev(descriptor, [parts[0][:100]])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "writev", full)
    for number in range(2, 5):
        assert not store.put(key(number), block(number), NOTE)
    assert len(caplog.messages) == 1 and "No space left" in caplog.messages[0]
    assert store.counts.errors == 1, "a full disk is not asked for every block"
    assert got(store, 1) and not got(store, 2)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.rglob(".*")] == []
    store._retry_at = 0.0
    fill(store, 2)
    assert got(store, 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_a_small_file_system_that_is_full(tmp_path, caplog):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        store = open_store(tmp_path)
        kept = [number for number in range(20) if store.put(key(number), block(number), NOTE)]
        assert 0 < len(kept) < 20
        assert all(got(store, number) == (number in kept) for number in range(20))
        assert store.counts.errors == 1 and len(caplog.messages) == 1
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_folder_that_refuses_writes_is_read(tmp_path, monkeypatch, caplog):
    fill(open_store(tmp_path), 1)

    def read_only(*args, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    store = open_store(tmp_path)
    for name in ("open", "rename", "mkdir"):
        real = getattr(os, name)
        refuses = name != "open"
        monkeypatch.setattr(
            os, name, lambda path, *args, real=real, refuses=refuses, **options: read_only()
            if refuses or (args and args[0] & os.O_CREAT) else real(path, *args, **options)
        )  # fmt: skip
    assert got(store, 1) and not store.put(key(2), block(2), NOTE)
    store.delete(ROOT)
    assert not got(store, 1) and not store.has(key(1)), "what cannot be deleted is not used"
    assert len(caplog.messages) == 1 and "Read-only" in caplog.messages[0]


def test_a_folder_that_cannot_be_made_is_said_once(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    store = open_store(tmp_path / "file" / "folder")
    assert not store.put(key(1), block(1), NOTE) and not got(store, 1)
    assert len(caplog.messages) == 1


def test_what_a_killed_process_left_is_removed(tmp_path):
    store = open_store(tmp_path)
    fill(store, 1)
    chain = Path(store.path_of(key(1))).parent
    old, new, deleted = chain / ".old", chain / ".new", chain.parent / ".deleted-1-1"
    deleted.mkdir()
    (deleted / "block").write_text("")
    for path in (old, new):
        path.write_text("")
    os.utime(old, (0, 0))
    store = open_store(tmp_path)
    assert not old.exists() and new.exists() and not deleted.exists() and got(store, 1)


def test_a_strangers_files_stay(tmp_path):
    store = open_store(tmp_path)
    fill(store, 1)
    others = [tmp_path / "notes.txt", tmp_path / "qbench-kv.txt", tmp_path / store._name / "notes.txt"]
    for path in others:
        path.write_text("mine")
    open_store(tmp_path, 2 * file_bytes(BLOCK)).put(key(2), block(2), NOTE)
    assert all(path.read_text() == "mine" for path in others)


def test_the_page_cache_can_be_dropped(tmp_path):
    """The bytes stay; how fast they are read is for `qbench kv-store` to say."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 32)
    drop_from_page_cache(path)
    assert bytes(read_whole(path, aligned_buffer(8192), "direct")) == path.read_bytes()


def test_the_way_to_read_is_measured(tmp_path):
    assert fastest_read_mode(tmp_path) in READ_MODES
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    assert fastest_read_mode(tmp_path / "missing") == fastest_read_mode(tmp_path / "file" / "folder") == "direct"


def test_identities_differ_in_what_they_name():
    assert IDENTITY.differences(IDENTITY.to_text()) == ["version"]
    assert IDENTITY.differences(replace(IDENTITY, model="x", page_size=1).to_text()) == ["model", "page_size"]
    assert IDENTITY.differences("no JSON") == IDENTITY.differences(json.dumps({"model": 1})) == ["version"]
    assert IDENTITY.space != replace(IDENTITY, compute="fast").space


class Writer:
    """A process that puts blocks and writes the number of each that is kept into a pipe; a fork, so that it starts at
    once."""

    def __init__(self, folder: Path, limit: int, numbers: list[int]) -> None:
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                store = open_store(folder, limit)
                for number in numbers:
                    if store.put(key(number), block(number), NOTE):
                        os.write(writer, number.to_bytes(4, "little"))
                status = 0
            finally:
                os._exit(status)
        os.close(writer)

    def is_over(self) -> bool:
        pid, self.status = os.waitpid(self.pid, os.WNOHANG)
        return pid != 0

    def acknowledged(self) -> list[int]:
        """All that is in the pipe, up to its end."""
        with open(self.reader, "rb") as pipe:
            return np.frombuffer(pipe.read(), "<i4").tolist()


def test_two_processes_write_evict_and_read_at_once(tmp_path):
    limit = 40 * file_bytes(BLOCK)
    store = open_store(tmp_path, limit)
    orders = [random.Random(seed).sample(range(200), 200) for seed in range(2)]
    writers = [Writer(tmp_path, limit, order) for order in orders]
    num_read, running = 0, list(writers)
    while running := [writer for writer in running if not writer.is_over()]:
        num_read += sum(got(store, number) for number in range(200))
        assert sum(_size(path) for path in blocks_of(tmp_path)) <= limit
    assert [writer.status for writer in writers] == [0, 0]
    assert [writer.acknowledged() for writer in writers] == orders
    assert num_read and store.counts.corrupt_blocks == store.counts.errors == 0


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(s, marks=pytest.mark.exhaustive("more of the same")) for s in range(5, 50))]
)
def test_what_was_acknowledged_survives_kill_9(tmp_path, seed):
    writer = Writer(tmp_path, PLENTY, list(range(10000)))
    time.sleep(0.02 + random.Random(seed).uniform(0, 0.2))
    os.kill(writer.pid, signal.SIGKILL)
    os.waitpid(writer.pid, 0)
    acknowledged = writer.acknowledged()
    store = open_store(tmp_path)
    assert acknowledged == list(range(len(acknowledged))) and all(got(store, number) for number in acknowledged)
    there = sum(got(store, number) for number in range(len(acknowledged) + 3))
    assert store.counts.corrupt_blocks == 0 and there <= len(acknowledged) + 1
    fill(store, len(acknowledged) + 2)
    assert got(store, len(acknowledged) + 2)


def _set_time(store: DiskStore, number: int, seconds: float) -> None:
    path = store.path_of(key(number))
    if os.path.exists(path):
        os.utime(path, (seconds, seconds))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("jump_s", [-(10**8), 10**8], ids=["back", "forward"])
def test_least_recently_used_goes_first_though_the_clock_jumps(tmp_path, monkeypatch, jump_s):
    """Blocks 0 to 3 have the times of the clock before the jump; those that follow are of now."""
    store = open_store(tmp_path, max_bytes=8 * file_bytes(BLOCK))
    fill(store, 0, 1, 2, 3)
    for path in blocks_of(tmp_path):
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - jump_s * 10**9))
    fill(store, 4, 5, 6, 7, 8)
    assert {number for number in range(9) if got(store, number)} >= {5, 6, 7, 8}
    assert sum(got(store, number) for number in range(4)) < 4


def test_a_file_that_was_left_is_removed_though_the_clock_was_set_back(tmp_path):
    fill(open_store(tmp_path), 1)
    (left,) = blocks_of(tmp_path)
    left = left.rename(left.with_name(".token-1"))
    os.utime(left, (time.time() + 10**8,) * 2)
    open_store(tmp_path)
    assert not left.exists()
