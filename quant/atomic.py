"""Outputs appear whole or not at all: a temporary name in the same folder, fsync, then one rename."""

import ctypes
import errno
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quant.errors import InputError

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux: fcntl.h, stdio.h


@contextmanager
def atomic_file(
    path: Path, *, replaces: Callable[[Path], bool] = Path.is_file, needed_bytes: int = 0
) -> Iterator[Path]:
    """Yields a temporary path; when the block ends well it becomes `path`, otherwise it is removed.

    replaces       says of an existing `path` whether it may be replaced
    needed_bytes   asked of the disk before the work instead of after it
    raises         InputError for a missing or unwritable folder, an existing `path` that is something else, a full disk
    """
    with temporary_path(path, replaces, needed_bytes) as temp:
        yield temp
        fsync(temp)
        os.replace(temp, path)


@contextmanager
def atomic_dir(path: Path, *, replaces: Callable[[Path], bool], needed_bytes: int = 0) -> Iterator[Path]:
    """As `atomic_file` for a directory; the yielded one exists and is empty.

    The old and the new one change places in one step. If the file system cannot do that, the old one steps aside first
    and comes back on failure, or in the next run after a kill.
    """
    with temporary_path(path, replaces, needed_bytes) as temp:
        temp.mkdir()
        yield temp
        for file in sorted(temp.iterdir()):
            fsync(file)
        fsync(temp)
        if not path.exists():
            os.rename(temp, path)
        elif not _exchange(temp, path):
            _replace_in_two_steps(temp, path)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False if this system cannot. raises OSError for other failures"""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Linux with glibc 2.28 or musl 1.2
    if call is None:
        return False
    if call(AT_FDCWD, os.fsencode(one.absolute()), AT_FDCWD, os.fsencode(other.absolute()), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number))


def _replace_in_two_steps(temp: Path, path: Path) -> None:
    aside = path.with_name(f".{path.name}.old-{platform.node()}-{os.getpid()}")
    os.rename(path, aside)
    try:
        os.rename(temp, path)
    except OSError:
        os.rename(aside, path)
        raise
    shutil.rmtree(aside)


@contextmanager
def temporary_path(path: Path, replaces: Callable[[Path], bool], needed_bytes: int) -> Iterator[Path]:
    """Yields a free name in the folder of `path`, for a file or a directory, and removes it at the end if it still
    exists.

    raises   InputError as `atomic_file`, and for every OSError of the block
    """
    check_target(path, replaces, needed_bytes)
    folder = path.parent
    temp = folder / f".{path.name}.tmp-{platform.node()}-{os.getpid()}"
    try:
        _remove_leftovers(path)
        yield temp
        fsync(folder)
    except OSError as error:
        raise InputError(f"{path}: cannot write: {_reason(error)}") from error
    finally:
        _remove(temp)


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary files of `path` whose process was killed; those of other machines stay.

    A directory that had stepped aside for one that never came gets its name back.
    """
    for kind in ("tmp", "old"):
        prefix = f".{path.name}.{kind}-{platform.node()}-"
        for found in path.parent.iterdir():
            number = found.name.removeprefix(prefix)
            if not found.name.startswith(prefix) or not number.isdecimal() or _is_other_process(int(number)):
                continue
            if kind == "old" and not path.exists():
                with suppress(OSError):  # another user's, in a folder of all
                    os.rename(found, path)
            else:
                _remove(found)


def _is_other_process(number: int) -> bool:
    try:
        os.kill(number, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return number != os.getpid()


def _remove(temp: Path) -> None:
    """Remove a file or a directory, if it exists and this user may."""
    if temp.is_dir():
        shutil.rmtree(temp, ignore_errors=True)
    else:
        with suppress(OSError):
            temp.unlink()


def check_target(path: Path, replaces: Callable[[Path], bool], needed_bytes: int = 0) -> None:
    """raises InputError for a `path` that cannot be written, before any work is done for it; see `atomic_file`"""
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"{path}: the folder {folder} does not exist; make it first")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{path}: the folder {folder} is not yours to write to; choose another")
    if os.path.lexists(path) and not replaces(path):
        raise InputError(f"{path} exists and is something else; remove it or write to another name")
    free = shutil.disk_usage(folder).free
    if needed_bytes > free:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # the cause: another try may end better
        raise InputError(f"{path}: {needed_bytes} bytes are needed and {free} are free; free some space") from full


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; free some space or write to another disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "permission denied; choose a folder that you may write to"
    # numpy's tofile reports a short write without an errno.
    return error.strerror or f"{error} (is the disk full?)"


def fsync(path: Path) -> None:
    """Waits until the file's bytes, or the directory's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
