"""Blocks in files: their bytes, damage, other identities, and the limit of a folder."""

import json
import logging
import os
import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.disk_blocks import BLOCK, IDENTITY, NOTE, ROOT, block, blocks_of, fill, got, key, open_store

from qbench.runtime.tiers import block_file, disk_store
from qbench.runtime.tiers.aligned import READ_MODES, aligned_buffer, drop_from_page_cache, fastest_read_mode, read_whole
from qbench.runtime.tiers.block_file import HEADER_BYTES, file_bytes
from qbench.runtime.tiers.block_store import CorruptBlock
from qbench.runtime.tiers.disk_store import DiskStore
from quant.errors import InputError


@pytest.mark.parametrize("mode", READ_MODES)
def test_a_stored_block_is_found_by_another_store_of_the_folder(tmp_path, mode):
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


def test_only_the_owner_lists_the_folders(tmp_path):
    """A name is a digest of tokens, so a listing would confirm a guessed prompt."""
    fill(open_store(tmp_path / "store"), 1)
    folders = [tmp_path / "store", *(path for path in (tmp_path / "store").rglob("*") if path.is_dir())]
    assert len(folders) == 3 and {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def test_folders_of_older_versions_are_closed_to_others(tmp_path):
    fill(open_store(tmp_path), 1)
    (space,) = tmp_path.glob("qbench-kv*")
    tmp_path.chmod(0o755)
    space.chmod(0o755)
    assert got(open_store(tmp_path), 1)
    assert space.stat().st_mode & 0o777 == 0o700
    assert tmp_path.stat().st_mode & 0o777 == 0o755, "the folder itself is the user's"


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


@pytest.mark.parametrize("mode", READ_MODES)
def test_a_fifo_in_place_of_a_block_is_damage(tmp_path, mode):
    """Its open would wait for a writer for ever, and with it the request, and the end of the server."""
    store = open_store(tmp_path)
    store.read_mode = mode
    fill(store, 1)
    path = Path(store.path_of(key(1)))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CorruptBlock):
        got(store, 1)
    assert not store.has(key(1))
    fill(store, 1)
    assert got(store, 1)


def test_a_fifo_in_place_of_an_identity(tmp_path, caplog):
    fill(open_store(tmp_path, model="other"), 1)
    (path,) = tmp_path.glob("qbench-kv*/identity.json")
    path.unlink()
    os.mkfifo(path)
    fill(open_store(tmp_path), 1)
    assert "differ in version" in caplog.text


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
        open_store(tmp_path, **change)
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


def test_the_last_blocks_of_a_chain_are_evicted_first(tmp_path):
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


def test_identities_differ_in_their_names():
    assert IDENTITY.differences(IDENTITY.to_text()) == ["version"]
    assert IDENTITY.differences(replace(IDENTITY, model="x", page_size=1).to_text()) == ["model", "page_size"]
    assert IDENTITY.differences("no JSON") == IDENTITY.differences(json.dumps({"model": 1})) == ["version"]
    assert IDENTITY.space != replace(IDENTITY, compute="fast").space


def _set_time(store: DiskStore, number: int, seconds: float) -> None:
    path = store.path_of(key(number))
    if os.path.exists(path):
        os.utime(path, (seconds, seconds))


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
