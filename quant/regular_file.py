"""Files of strangers, opened only if they are regular: no read waits for a pipe or goes on for ever."""

import errno
import io
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from quant.errors import InputError

KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}
LFS = b"version https://git-lfs"  # first bytes of a pointer; https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
BLOBS, HUB_MODEL = "blobs", "models--"  # the hub's cache: models--ORG--NAME/snapshots/COMMIT/FILE -> ../../blobs/HASH


def open_regular(path: str | Path, most_bytes: int | None = None) -> io.BufferedReader:
    """The file, open for reading.

    raises   OSError, whose strerror names the kind of a file that is not regular, or the size of one that is too large
    """
    # Without O_NONBLOCK the open itself waits for the other end of a FIFO. It has no effect on regular files.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            kind = KINDS.get(stat.S_IFMT(status.st_mode), "a special file")
            raise OSError(errno.EINVAL, f"it is {kind}, expected a regular file", str(path))
        if most_bytes is not None and status.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes, expected at most {most_bytes}", str(path))
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def read_regular(path: str | Path, most_bytes: int) -> bytes:
    """All bytes of a file. raises OSError as `open_regular`"""
    with open_regular(path, most_bytes) as file:
        return file.read(most_bytes)  # a file may grow meanwhile, and files of /proc do not know their size


def read_regular_text(path: str | Path, most_bytes: int | None = None, newline: str | None = None) -> str:
    """The UTF-8 text of a file.

    newline   "": the ends of lines as they are in the file; None: each becomes a line feed
    raises    OSError as `open_regular`, UnicodeDecodeError
    """
    with (
        open_regular(path, most_bytes) as file,
        io.TextIOWrapper(file, encoding="utf-8", newline=newline) as text,
    ):
        return text.read()


def check_links(folder: Path, names: Iterable[str]) -> None:
    """Refuse a link out of a model's directory: an artifact would publish the private file that it names.

    Links of the hub's cache into its folder of blobs are let through.
    names    of files in the folder; a missing one is no error
    raises   InputError
    """
    inside = os.path.realpath(folder) + os.sep
    for name in names:
        check_is_no_dead_link(folder / name)
        real = os.path.realpath(folder / name)
        if not real.startswith(inside) and not _is_blob(Path(real)):
            raise InputError(f"{folder / name}: a link to {real}, outside the directory; put a copy of the file there")


def _is_blob(path: Path) -> bool:
    return path.parent.name == BLOBS and path.parent.parent.name.startswith(HUB_MODEL)


def check_is_no_pointer(start: bytes, where: str) -> None:
    """start: first bytes of a file. raises InputError for a pointer of Git LFS"""
    if start.startswith(LFS):
        raise InputError(
            f"{where}: a pointer of Git LFS in place of the file; run `git lfs pull` there, or download the file again"
        )


def check_is_no_dead_link(path: Path) -> None:
    """raises InputError for a link to a file that is not there, as interrupted downloads leave it in the hub's cache"""
    if path.is_symlink() and not path.exists():
        raise InputError(f"{path}: a link to {path.readlink()}, which is not there; download the model again")
