"""Disks that are full and folders that refuse: one message, and reads go on."""

import errno
import os
import subprocess

import pytest
from support.disk_blocks import NOTE, ROOT, block, fill, got, key, open_store


def test_a_full_disk_is_reported_once_and_reads_go_on(tmp_path, monkeypatch, caplog):
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


def test_a_folder_that_cannot_be_made_is_reported_once(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    store = open_store(tmp_path / "file" / "folder")
    assert not store.put(key(1), block(1), NOTE) and not got(store, 1)
    assert len(caplog.messages) == 1
