"""A file of lines that several processes append to: an append is complete or has no effect."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quant.atomic import fsync
from quant.errors import InputError
from quant.regular_file import open_regular

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def own_turn(path: Path) -> Iterator[int]:
    """The open file, made if need be, while no other writer has it. raises InputError for an OSError of the block"""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        why = "the disk is full; free some space and go on" if error.errno in FULL else error.strerror
        raise InputError(f"{path}: cannot write records: {why}") from error


def append(path: Path, descriptor: int, lines: bytes) -> None:
    """Put `lines` at the end and wait until they are on disk; a last line that was torn is closed off before.

    descriptor   of `path`, in one's own turn
    raises       OSError, and the file is as it was
    """
    end = os.fstat(descriptor).st_size
    if end and os.pread(descriptor, 1, end - 1) != b"\n":
        lines = b"\n" + lines
    try:
        rest = memoryview(lines)
        while rest:  # a disk that is nearly full takes a part, and refuses the next
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
        if end == 0:
            fsync(path.parent)  # the name of a new file
    except OSError:
        os.ftruncate(descriptor, end)
        raise


def content(descriptor: int) -> bytes:
    """The whole file, in one's own turn."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read()


def read_lines(path: Path) -> list[bytes]:
    """The lines of the file, read while nobody writes, so that no line is incomplete. raises OSError"""
    with open_regular(path) as file:
        with suppress(OSError):  # a file system without locks is read all the same
            fcntl.flock(file, fcntl.LOCK_SH)
        return file.read().split(b"\n")
