"""Buffers and reads that the kernel's direct I/O takes, in multiples of ALIGNMENT, and the fastest way to read."""

import contextlib
import errno
import fcntl
import functools
import mmap
import os
import secrets
import stat
import time
from pathlib import Path

import numpy as np

ALIGNMENT = 4096  # a page of memory, and at least the logical block of today's disks

DIRECT, BUFFERED, MAPPED = READ_MODES = ("direct", "buffered", "mapped")
SAMPLE_BYTES = 4 << 20  # at 1 GB/s 4 ms, far above the time of a call
ROUNDS = 3


def padded(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def aligned_buffer(num_bytes: int) -> np.ndarray:
    """[num_bytes] uint8 that begins at a multiple of ALIGNMENT; pages are taken when they are written."""
    return np.frombuffer(mmap.mmap(-1, max(num_bytes, 1)), dtype=np.uint8)[:num_bytes]


def read_whole(path: Path, out: np.ndarray, mode: str) -> np.ndarray:
    """The file's bytes, in `out` if that is as large as the file; raises OSError.

    out      an aligned buffer
    mode     one of READ_MODES; a file system without direct I/O is read through the page cache
    returns  as many bytes of `out` as the file has, at most all; 0 if it is not regular
    """
    descriptor = open_for_reading(path, mode)
    try:
        status = os.fstat(descriptor)
        size = status.st_size
        if not stat.S_ISREG(status.st_mode):  # a read could wait for ever
            return out[:0]
        if mode == MAPPED:
            size = min(size, len(out))
            if size:
                with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as pages:
                    out[:size] = np.frombuffer(pages, dtype=np.uint8)
            return out[:size]
        if size > len(out):
            return out[:0]
        return out[: read_at(descriptor, out[: padded(size)].data, 0)]
    finally:
        os.close(descriptor)


def open_for_reading(path: Path, mode: str) -> int:
    """A descriptor. raises OSError"""
    flags = os.O_RDONLY | os.O_NONBLOCK  # or the open of a FIFO waits; it has no effect on regular files
    if mode == DIRECT:
        try:
            return os.open(path, flags | os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    return os.open(path, flags)


def is_direct(descriptor: int) -> bool:
    """Whether reads of an open file go past the page cache."""
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)


def read_at(descriptor: int, out: memoryview, offset: int) -> int:
    """Fill `out`, or as much of it as the file has; returns the number of bytes."""
    done = 0
    while done < len(out):
        count = os.preadv(descriptor, [out[done:]], offset + done)
        done += count
        if not count or done % ALIGNMENT:  # the end of the file
            break
    return done


def drop_from_page_cache(path: Path) -> None:
    """The next read comes from the disk; pages that are not written yet stay."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


@functools.cache
def fastest_read_mode(folder: Path) -> str:
    """One of READ_MODES, from cold reads of a file that is written for it; DIRECT if the folder takes no files."""
    path = folder / f".qbench-read-{secrets.token_hex(6)}"
    try:
        data = np.random.default_rng(0).integers(0, 256, SAMPLE_BYTES, dtype=np.uint8)
        with open(path, "wb") as file:
            file.write(data.data)
            os.fsync(file.fileno())
        return min(READ_MODES, key=lambda mode: min(_cold_seconds(path, mode) for _ in range(ROUNDS)))
    except OSError:
        return DIRECT
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _cold_seconds(path: Path, mode: str) -> float:
    drop_from_page_cache(path)
    buffer = aligned_buffer(SAMPLE_BYTES)
    buffer[:] = 0  # its memory is there before the clock starts
    begin = time.perf_counter()
    read_whole(path, buffer, mode)
    return time.perf_counter() - begin
